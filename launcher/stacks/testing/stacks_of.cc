// Prints the stacks of processes, for tests by hand: stacks_of [--native] [--tool=SECONDS] PID...
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "launcher/stacks/stacks.h"

int main(int argc, char** argv) {
  using namespace ddprun;
  StackKind kind = StackKind::kWithoutPause;
  StackLimits limits;
  std::vector<pid_t> pids;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--native") == 0) {
      kind = StackKind::kNative;
    } else if (std::strncmp(argv[i], "--tool=", 7) == 0) {
      limits.tool = limits.all = seconds(std::atoi(argv[i] + 7));
    } else {
      pids.push_back(std::atoi(argv[i]));
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const Stacks stacks = CollectStacks(pids, kind, limits);
  const auto millis = [](Duration d) { return std::chrono::duration_cast<milliseconds>(d).count(); };
  std::cout << "took " << millis(std::chrono::steady_clock::now() - start) << " ms\n";
  for (const auto& [pid, threads] : stacks.of) {
    for (const ThreadStack& t : threads) {
      std::cout << "process " << pid << " thread " << t.thread << " " << t.name << (t.main ? " (main)" : "")
                << "\n"
                << t.folded << "\n\n";
    }
  }
  for (const auto& [pid, pause] : stacks.paused)
    std::cout << "paused " << pid << " for " << millis(pause) << " ms\n";
  for (const std::string& sentence : stacks.missing) std::cout << "missing: " << sentence << "\n";
}
