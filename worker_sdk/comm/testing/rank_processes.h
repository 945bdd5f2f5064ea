// Runs each rank of a round as a separate process, which executes the test's own binary.
//
//   int main(int argc, char** argv) {
//     if (auto rank = RankProcess::Self()) return RunScenario(*rank);
//     ...
//   }
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/testing/file_store.h"

namespace ddprun {

// The arguments of one rank's process.
struct RankProcess {
  HostCommunicatorOptions options;
  std::string store_dir;
  std::vector<std::string> args;  // the scenario and its arguments

  // The variables with the arguments of `rank`, for a process that the caller starts. `ranks_of_node` and `args`: as for
  // RankProcesses. `address`: HostCommunicatorOptions::address.
  static std::vector<std::pair<std::string, std::string>> Variables(const std::vector<int>& ranks_of_node,
                                                                    int rank, const std::string& store_dir,
                                                                    const std::vector<std::string>& args,
                                                                    const std::string& address);
  // The arguments of this process; nullopt if it has no such variables.
  static std::optional<RankProcess> Self();
};

class RankProcesses {
 public:
  static constexpr int kRound = 7;

  // Does not start any process. `ranks_of_node`: number of ranks on each node. `args`: RankProcess::args of
  // every process. The processes share a store in a new directory.
  RankProcesses(std::vector<int> ranks_of_node, std::vector<std::string> args);
  // Kills and reaps the remaining processes and removes the directory.
  ~RankProcesses();

  void Start(int rank);
  void StartAll();
  int world_size() const { return static_cast<int>(pids_.size()); }
  FakeFileStore& store() { return store_; }
  const std::string& store_dir() const { return dir_; }
  pid_t pid(int rank) const { return pids_[rank]; }
  void Kill(int rank, int signo);

  // Returns true if the process of `rank` is stopped by a signal.
  bool IsStopped(int rank) const;

  // Waits for the process of `rank` to exit and returns its waitpid status; nullopt if it is still running
  // after `timeout`.
  std::optional<int> Wait(int rank, Duration timeout);

 private:
  const std::vector<int> ranks_of_node_;
  const std::vector<std::string> args_;
  const std::string dir_;
  FakeFileStore store_;
  std::vector<pid_t> pids_;  // by rank; 0: not started, or already reaped
};

}  // namespace ddprun
