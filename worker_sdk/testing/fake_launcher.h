// Runs a job of survivors without ddprun: starts a process for each rank, plays the agents, and replaces processes that die.
// The ranks keep their places in all rounds.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "base/worker_env.h"
#include "base/worker_message.h"
#include "os/descriptor.h"
#include "worker_sdk/store/testing/fake_c10d_server.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {

class FakeLauncher {
 public:
  static constexpr int kFirstRound = 7;

  // `ranks_of_node`: the number of ranks on each node. `args`: for Args() in the processes. `program`: its command line; empty: the
  // test's own binary.
  FakeLauncher(std::vector<int> ranks_of_node, std::vector<std::string> args,
               std::vector<std::string> program = {});
  ~FakeLauncher();  // kills and reaps what still runs

  // In a process of the job: its arguments. In the test: nullopt.
  static std::optional<std::vector<std::string>> Args();

  // Runs the job until all processes have exited with 0. Returns what went wrong: the limit has passed, or a process exited with
  // an error; empty if nothing did.
  //   meanwhile: called at least every 10 ms; it may kill processes.
  std::string Run(Duration limit, const std::function<void()>& meanwhile = nullptr);

  [[nodiscard]] int world_size() const { return static_cast<int>(workers_.size()); }
  [[nodiscard]] int round() const { return round_; }                      // the last one
  [[nodiscard]] pid_t pid(int rank) const { return workers_[rank].pid; }  // 0: does not run
  // The newest report of rank `rank` in round(); nullopt if there is none.
  [[nodiscard]] const std::optional<WorkerReport>& report(int rank) const { return workers_[rank].report; }
  // Requests a snapshot from all ranks.
  void AskForSnapshot();
  // How many processes rank `rank` has had.
  [[nodiscard]] int num_starts(int rank) const { return workers_[rank].num_starts; }
  [[nodiscard]] int num_killed() const { return num_killed_; }
  [[nodiscard]] int num_parked() const { return num_parked_; }  // over all rounds

 private:
  struct Worker {
    WorkerEnv env;
    std::unique_ptr<FakeAgent> agent;
    pid_t pid = 0;  // 0: does not run
    UniqueFd pidfd;
    bool registered = false, parked = false;
    std::optional<WorkerReport> report;
    int num_starts = 0;
  };
  void Start(Worker& worker);
  void OnMessages(Worker& worker);
  // Returns what went wrong.
  std::string OnExit(Worker& worker);
  void EndRound();
  void BeginRound();
  [[nodiscard]] bool AllAreDeadOrParked() const;
  [[nodiscard]] AgentRequest Request() const;

  const std::vector<std::string> args_;
  const std::vector<std::string> program_;
  std::unique_ptr<FakeC10dServer> store_;  // of the round
  int round_ = kFirstRound;
  bool over_ = false;  // the round is
  int num_killed_ = 0, num_parked_ = 0;
  std::vector<Worker> workers_;  // by rank
};

}  // namespace ddprun
