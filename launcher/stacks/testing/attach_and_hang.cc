// A gdb that hangs: attaches to the process of its argument "attach PID" and does not even wait until that has stopped.
#include <sys/ptrace.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "attach ", 7) != 0) continue;
    if (ptrace(PTRACE_ATTACH, std::atoi(argv[i] + 7), nullptr, nullptr) != 0) return 1;
  }
  while (true) pause();
}
