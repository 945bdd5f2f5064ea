// A worker for tests, controlled by flags. First it prints one line to stdout, such as
//   ready rank=0 local_rank=0 world_size=2 round=0 restart=0 master=127.0.0.1:4711 pid=42 at=60000
// Then it waits until the gate opens, or forever.
//
//   --gate=FIFO        exits with 0 when the last writer of the fifo has closed it
//   --exit=CODE        exits with CODE immediately
//   --fail-in-round=N  in round N, when the gate has opened, prints the message of an exception and exits
//                      with 3
//   --fail-rank=R      with --fail-in-round: only rank R fails, without waiting for the gate
//   --eat-in-round=N   allocates memory in round N until it is killed
//   --finish-ms=N      after SIGTERM prints "saving rank=R round=N at=MS", continues for N ms, prints
//                      "saved rank=R round=N at=MS", and exits with 0
//   --stubborn         ignores SIGINT, SIGTERM, SIGHUP and SIGUSR1
//   --family           before it prints the line, starts a plain child, a child in a separate session that
//                      ignores the signals of --stubborn, and a daemon that is forked twice and has no
//                      environment
//
// "at" is the time in ms on the machine's monotonic clock.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

std::string Env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

void Ignore() {
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) signal(signo, SIG_IGN);
}

std::string NowInMillis() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::to_string(now.tv_sec * 1000 + now.tv_nsec / 1'000'000);
}

void Print(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(4);
}

// Waits for SIGTERM, then behaves like a worker that writes a snapshot.
[[noreturn]] void FinishOnSigterm(int work_ms) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  int signo = 0;
  sigwait(&set, &signo);
  Print("saving rank=" + Env("RANK") + " round=" + Env("DDPRUN_ROUND") + " at=" + NowInMillis() + "\n");
  poll(nullptr, 0, work_ms);
  Print("saved rank=" + Env("RANK") + " round=" + Env("DDPRUN_ROUND") + " at=" + NowInMillis() + "\n");
  _exit(0);
}

[[noreturn]] void WaitForEver(int ready) {
  if (write(ready, "x", 1) != 1) _exit(1);
  close(ready);
  for (;;) pause();
}

void HaveChildren(const char* self) {
  int ready[2];
  if (pipe(ready) != 0) exit(4);
  if (fork() == 0) WaitForEver(ready[1]);
  if (fork() == 0) {
    setsid();
    Ignore();
    WaitForEver(ready[1]);
  }
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    const std::string fd = "--daemon=" + std::to_string(ready[1]);
    const char* const argv[] = {self, fd.c_str(), nullptr};
    const char* const no_environment[] = {nullptr};
    for (const char* const program : {"/proc/self/exe", self}) {  // the second one if /proc is missing
      execve(program, const_cast<char* const*>(argv), const_cast<char* const*>(no_environment));
    }
    _exit(1);
  }
  char byte;
  for (int i = 0; i < 3; ++i) {
    if (read(ready[0], &byte, 1) != 1) exit(4);
  }
  close(ready[0]);
  close(ready[1]);
}

[[noreturn]] void Eat() {
  constexpr int kBytes = 1 << 20;
  for (;;) {
    volatile char* const memory = new char[kBytes];
    for (int i = 0; i < kBytes; i += 1024) memory[i] = 1;
  }
}

// Waits until no process has the fifo open for writing.
void AwaitGate(const std::string& path) {
  // A blocking open would wait for a writer, but the writer may have closed the fifo already. The read blocks
  // while there is a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) fcntl(fd, F_SETFL, 0);
  char byte;
  if (fd < 0 || read(fd, &byte, 1) != 0) exit(4);
}

}  // namespace

int main(int argc, char** argv) {
  std::string gate;
  int code = -1, finish_ms = -1;
  std::string fail_in_round = "none", fail_rank = "all", eat_in_round = "none";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value = flag.substr(flag.find('=') + 1);
    if (flag.starts_with("--gate=")) gate = value;
    if (flag.starts_with("--exit=")) code = std::stoi(value);
    if (flag.starts_with("--fail-in-round=")) fail_in_round = value;
    if (flag.starts_with("--fail-rank=")) fail_rank = value;
    if (flag.starts_with("--eat-in-round=")) eat_in_round = value;
    if (flag.starts_with("--daemon=")) WaitForEver(std::stoi(value));
    if (flag.starts_with("--finish-ms=")) finish_ms = std::stoi(value);
    if (flag == "--stubborn") Ignore();
    if (flag == "--family") HaveChildren(argv[0]);
  }
  if (finish_ms >= 0) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  const std::string line = "ready rank=" + Env("RANK") + " local_rank=" + Env("LOCAL_RANK") +
                           " world_size=" + Env("WORLD_SIZE") + " round=" + Env("DDPRUN_ROUND") +
                           " restart=" + Env("TORCHELASTIC_RESTART_COUNT") + " master=" + Env("MASTER_ADDR") +
                           ":" + Env("MASTER_PORT") + " pid=" + std::to_string(getpid()) +
                           " at=" + NowInMillis() + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 4;
  if (code >= 0) return code;
  if (finish_ms >= 0) FinishOnSigterm(finish_ms);
  if (Env("DDPRUN_ROUND") == eat_in_round) Eat();
  const bool fails = Env("DDPRUN_ROUND") == fail_in_round && (fail_rank == "all" || fail_rank == Env("RANK"));
  if (!fails || fail_rank == "all") {
    if (gate.empty()) {
      for (;;) pause();
    }
    AwaitGate(gate);
  }
  if (fails) {
    std::fprintf(stderr,
                 "terminate called after throwing an instance of 'std::runtime_error'\n"
                 "  what():  the loss is not a number\n");
  }
  return fails ? 3 : 0;
}
