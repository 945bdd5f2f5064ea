#include "tests/sim/scale.h"

#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/world/hang_rules.h"
#include "tests/sim/world/sim_agent.h"
#include "tests/sim/world/sim_coordinator.h"

namespace ddprun::sim {
namespace {

// Many nodes with one worker each. The workers run until they are stopped.
class Crowd {
 public:
  explicit Crowd(int num_nodes) : network_(&clock_, Random(1, "network"), {}), tcp_(&clock_, &network_) {
    settings_.rules.min_nodes = settings_.rules.max_nodes = settings_.num_hosts = num_nodes;
    settings_.rules.max_restarts = 1;
    settings_.plain = 1;
    settings_.step_time = seconds(1000);
    job_.settings = &settings_;
    job_.hangs = &hangs_;
    job_.clock = &clock_;
    job_.tcp = &tcp_;
    job_.disk = &disk_;
    job_.trace = &trace_;
    for (int i = 0; i <= num_nodes; ++i) {
      hosts_.push_back(
          std::make_unique<SimHost>(absl::StrCat("host", i), &clock_, &tcp_, &network_, Random(i)));
    }
    coordinator_ = std::make_unique<SimCoordinator>(&job_, hosts_[num_nodes].get(), NodeFacts{});
    coordinator_->set_checked(false);  // Each check of the rules takes O(nodes) time.
    coordinator_->Listen();
    for (int i = 0; i < num_nodes; ++i) {
      agents_.push_back(
          std::make_unique<SimAgent>(SimAgent::Place{.job = &job_,
                                                     .host = hosts_[i].get(),
                                                     .habits = &habits_,
                                                     .coordinator_host = hosts_[num_nodes]->id(),
                                                     .new_node_id = [i] { return absl::StrCat("n", i); },
                                                     .new_port = [this] { return next_port_++; },
                                                     .ended = [](bool) {}}));
    }
  }

  void Join() {
    for (const auto& agent : agents_) agent->Start();
    RunUntilRound(0);
  }
  void Restart() {
    agents_[0]->FailWorker(Exited{1});
    RunUntilRound(1);
  }
  // Whether `round` is the current round and every agent has workers.
  bool Runs(int round) const {
    int running = 0;
    for (const auto& agent : agents_) running += agent->warden().alive() > 0;
    return coordinator_->machine() != nullptr && coordinator_->machine()->round() == Round(round) &&
           running == static_cast<int>(agents_.size());
  }

  TimePoint now() const { return clock_.now(); }
  const SimCoordinator& coordinator() const { return *coordinator_; }
  int64_t packets() const { return network_.num_sent(); }

 private:
  void RunUntilRound(int round) {
    const TimePoint end = clock_.now() + seconds(60);
    while (clock_.now() < end && !Runs(round)) {
      clock_.RunUntil(clock_.now() + milliseconds(1));
    }
  }

  Settings settings_;
  Trace trace_{false};
  SimClock clock_;
  SimNetwork network_;
  SimTcp tcp_;
  SimDisk disk_{&clock_, &trace_, Random(1)};
  HangRules hangs_{&settings_, &clock_, &trace_};
  SimJob job_;
  HostHabits habits_;
  int next_port_ = 1000;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<std::unique_ptr<SimAgent>> agents_;
  std::unique_ptr<SimCoordinator> coordinator_;
};

double Cpu() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

int RunScale() {
  std::printf("%8s  %-8s %10s %12s %12s %14s %14s %12s\n", "nodes", "what", "messages", "per node",
              "simulated ms", "machine CPU ms", "us per node", "all CPU ms");
  for (const int nodes : {1000, 3000, 10000}) {
    Crowd crowd(nodes);
    for (const int round : {0, 1}) {
      const double cpu = Cpu();
      const TimePoint begin = crowd.now();
      const SimCoordinator::Load before = crowd.coordinator().load();
      round == 0 ? crowd.Join() : crowd.Restart();
      const SimCoordinator::Load after = crowd.coordinator().load();
      if (!crowd.Runs(round)) {
        std::printf("%d nodes: round %d did not start\n", nodes, round);
        return 1;
      }
      const int64_t messages = after.messages - before.messages;
      const double machine_ms = (after.machine_cpu - before.machine_cpu) * 1e3;
      std::printf("%8d  %-8s %10lld %12.2f %12lld %14.1f %14.2f %12.0f\n", nodes,
                  round == 0 ? "join" : "restart", static_cast<long long>(messages),
                  static_cast<double>(messages) / nodes,
                  static_cast<long long>((crowd.now() - begin) / milliseconds(1)), machine_ms,
                  machine_ms * 1e3 / nodes, (Cpu() - cpu) * 1e3);
    }
  }
  return 0;
}

}  // namespace ddprun::sim
