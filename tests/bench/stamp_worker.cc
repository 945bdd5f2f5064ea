// A worker that only reports its start and stop. `stamp_worker FIFO` writes "RANK PID MONOTONIC_NS\n" to
// FIFO at the start of main. At SIGTERM it writes "RANK -PID MONOTONIC_NS\n" and exits.
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

// A single write shorter than PIPE_BUF is atomic, so lines from different workers are not interleaved.
bool Stamp(int fifo, int pid) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char* rank = std::getenv("RANK");
  char line[96];
  const int size = std::snprintf(line, sizeof(line), "%s %d %lld\n", rank ? rank : "0", pid,
                                 static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  return write(fifo, line, size) == size;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: stamp_worker FIFO\n");
    return 2;
  }
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  const int fifo = open(argv[1], O_WRONLY | O_CLOEXEC);
  if (fifo < 0 || !Stamp(fifo, getpid())) {
    std::perror("stamp_worker");
    return 1;
  }
  int signo = 0;
  while (sigwait(&term, &signo) != 0) {
  }
  return Stamp(fifo, -getpid()) ? 0 : 1;
}
