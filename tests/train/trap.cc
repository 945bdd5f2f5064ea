// A libcuda.so.1 that ends the process that opens it with the exit code 77.
#include <unistd.h>

__attribute__((constructor)) static void EndProcess() { _exit(77); }
