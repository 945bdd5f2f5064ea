// The ranks of a round as real processes: this binary, executed again.
//
//   int main(int argc, char** argv) {
//     if (auto rank = RankProcess::Self()) return RunScenario(*rank);
//     ...
//   }
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/testing/file_store.h"

namespace ddprun {

// The arguments of such a process.
struct RankProcess {
  HostCommunicatorOptions options;
  std::string store_dir;
  std::vector<std::string> args;  // the scenario and its arguments

  // Those of this process; none if it was not started by RankProcesses.
  static std::optional<RankProcess> Self();
};

class RankProcesses {
 public:
  static constexpr int kRound = 7;

  // Starts no process. `ranks_of_node`: number of ranks of each node. The children share a store in a new
  // directory.
  RankProcesses(std::vector<int> ranks_of_node, std::vector<std::string> args);
  // Kills and reaps the remaining processes, and removes the directory.
  ~RankProcesses();

  void Start(int rank);
  void StartAll();
  int world_size() const { return static_cast<int>(pids_.size()); }
  FakeFileStore& store() { return store_; }
  const std::string& store_dir() const { return dir_; }
  pid_t pid(int rank) const { return pids_[rank]; }
  void Kill(int rank, int signo);

  // True if a signal has stopped it.
  bool IsStopped(int rank) const;

  // Waits for its exit. Returns the status of waitpid; none if it still runs after `timeout`.
  std::optional<int> Wait(int rank, Duration timeout);

 private:
  const std::vector<int> ranks_of_node_;
  const std::vector<std::string> args_;
  const std::string dir_;
  FakeFileStore store_;
  std::vector<pid_t> pids_;  // by rank; 0: not running
};

}  // namespace ddprun
