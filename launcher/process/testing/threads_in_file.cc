// threads_in_file [--main-exits] FILE: starts a second thread, which opens FILE and blocks. The main thread
// prints "ready" and then waits forever; with --main-exits, it exits.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>

int main(int argc, char** argv) {
  const bool main_exits = argc == 3 && std::strcmp(argv[1], "--main-exits") == 0;
  pthread_t thread;
  pthread_create(
      &thread, nullptr, [](void* file) -> void* { return open(static_cast<char*>(file), O_RDONLY), nullptr; },
      argv[argc - 1]);
  [[maybe_unused]] const ssize_t n = write(1, "ready\n", 6);
  if (main_exits) pthread_exit(nullptr);
  for (;;) pause();
}
