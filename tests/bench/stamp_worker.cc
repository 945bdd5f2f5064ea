// A worker that says when it runs and then only waits: `stamp_worker FIFO` writes one line
// "RANK PID MONOTONIC_NS\n" into FIFO at the start of main and sleeps until a signal ends it.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc != 2) {
    std::fprintf(stderr, "usage: stamp_worker FIFO\n");
    return 2;
  }
  const char* rank = std::getenv("RANK");
  char line[96];
  const int size = std::snprintf(line, sizeof(line), "%s %d %lld\n", rank ? rank : "0", getpid(),
                                 static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  const int fifo = open(argv[1], O_WRONLY | O_CLOEXEC);
  // One write, shorter than PIPE_BUF: lines of several workers do not mix.
  if (fifo < 0 || write(fifo, line, size) != size) {
    std::perror("stamp_worker");
    return 1;
  }
  close(fifo);
  for (;;) pause();
}
