#include "tests/sim/sim_world.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {
namespace {

// After calm: longest of last call, drain, lease and the workers' own run, several times over.
constexpr Duration kBound = seconds(600);

class World {
 public:
  World(uint64_t seed, bool print) : random_(seed), trace_(print) {
    policy_.min_nodes = static_cast<int>(random_.Between(1, 4));
    policy_.max_nodes = policy_.min_nodes + static_cast<int>(random_.Between(0, 3));
    policy_.max_restarts = static_cast<int>(random_.Between(0, 12));
    policy_.first_last_call = random_.Chance(0.3) ? seconds(0) : random_.Between(seconds(1), seconds(30));
    policy_.last_call = random_.Between(milliseconds(0), Duration(seconds(20)));
    policy_.join_timeout = seconds(300);
    policy_.lease = random_.Between(seconds(1), seconds(6));
    policy_.drain_timeout = seconds(30);
    coordinator_ = std::make_unique<SimCoordinator>(
        &clock_, &trace_, policy_,
        [this](const NodeId& node, std::string bytes, bool last) { Down(node, std::move(bytes), last); },
        [this](const NodeId& node) { return nodes_.at(node)->workers() > 0; });
  }

  SimResult Run() {
    trace_.Line(clock_.now(), absl::StrCat("nodes ", policy_.min_nodes, ":", policy_.max_nodes, ", restarts ",
                                           policy_.max_restarts, ", lease ", ToMillis(policy_.lease), " ms"));
    const TimePoint calm = clock_.now() + random_.Between(seconds(5), seconds(240));
    for (int64_t i = random_.Between(policy_.min_nodes, policy_.max_nodes + 2); i > 0; --i) {
      clock_.After(random_.Between(milliseconds(0), Duration(seconds(5))), [this] { AddNode(); });
    }
    PlanFault(calm);
    clock_.At(calm, [this] { Calm(); });
    while (!clock_.idle() && trace_.broken().empty() && clock_.now() < calm + kBound && !Over(calm)) {
      clock_.RunOne();
      ++result_.steps;
    }
    if (trace_.broken().empty() && !Over(calm)) {
      trace_.Broken(clock_.now(),
                    absl::StrCat("the job did not end within ", kBound / seconds(1), " s of calm"));
    }
    for (const auto& [id, node] : nodes_) {
      if (trace_.broken().empty() && node->workers() > 0)
        trace_.Broken(clock_.now(), absl::StrCat(id, " left workers"));
    }
    result_.broken = trace_.broken();
    result_.trace_hash = trace_.hash();
    result_.rounds = coordinator_->rounds_sealed();
    result_.restarts = coordinator_->machine().restarts();
    return result_;
  }

 private:
  // The two directions of one connection: bytes arrive in order, each after a delay of its own.
  struct Link {
    TimePoint up_free;
    TimePoint down_free;
    TimePoint cut_until;  // silent until then: what was sent arrives afterwards
    bool broken = false;  // reset: nothing more arrives
    bool ended = false;   // the coordinator has said its last word
  };

  bool Over(TimePoint calm) const {
    if (clock_.now() < calm || coordinator_->machine().state() != RoundMachine::State::kClosed) return false;
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.second->ended(); });
  }

  void AddNode() {
    const int number = static_cast<int>(nodes_.size());
    NodeInfo info{.id = absl::StrCat("node", number),
                  .host = absl::StrCat("host", number),
                  .addr = absl::StrCat("10.0.0.", number),
                  .nproc = static_cast<int>(random_.Between(1, 3))};
    const NodeId id = info.id;
    links_[id] = {};
    nodes_[id] = std::make_unique<SimNode>(
        info, policy_.lease, &clock_, &trace_, &random_,
        SimNode::Outside{
            .send = [this](const NodeId& node, std::string bytes) { Up(node, std::move(bytes)); },
            .hang_up = [this](const NodeId& node) { HangUp(node); },
            .habits = [this] { return habits_; }});
    trace_.Line(clock_.now(), absl::StrCat(id, " starts"));
    nodes_[id]->Join();
  }

  Duration Delay() {
    return !calm_ && random_.Chance(0.02)
               ? random_.Between(milliseconds(50), milliseconds(900))
               : random_.Between(Duration(std::chrono::microseconds(50)), Duration(milliseconds(5)));
  }

  void Up(const NodeId& id, std::string bytes) {
    Link& link = links_[id];
    link.up_free = std::max({link.up_free, clock_.now() + Delay(), link.cut_until});
    clock_.At(link.up_free, [this, id, bytes = std::move(bytes)] { Arrive(id, bytes); });
  }
  void Arrive(const NodeId& id, const std::string& bytes) {
    if (links_[id].broken) return;
    const TimePoint free = std::max(links_[id].cut_until, coordinator_->stalled_until());
    if (free > clock_.now()) {
      clock_.At(free, [this, id, bytes] { Arrive(id, bytes); });
      return;
    }
    coordinator_->Receive(id, bytes);
  }
  void Down(const NodeId& id, std::string bytes, bool last) {
    Link& link = links_[id];
    if (link.ended) return;
    link.ended = last;
    link.down_free = std::max({link.down_free, clock_.now() + Delay(), link.cut_until});
    clock_.At(link.down_free, [this, id, bytes = std::move(bytes)] {
      if (!links_[id].broken) nodes_.at(id)->Receive(bytes);
    });
  }
  // The agent's end is closed; the coordinator hears of it unless the link is cut.
  void HangUp(const NodeId& id) {
    Link& link = links_[id];
    if (link.broken) return;
    link.up_free = std::max({link.up_free, clock_.now() + Delay(), link.cut_until});
    clock_.At(link.up_free, [this, id] { Lost(id, "it hung up"); });
  }
  void Lost(const NodeId& id, const std::string& reason) {
    if (links_[id].broken) return;
    if (coordinator_->stalled()) {
      clock_.At(coordinator_->stalled_until(), [this, id, reason] { Lost(id, reason); });
      return;
    }
    links_[id].broken = true;
    coordinator_->Lose(id, reason);
  }
  void Reset(const NodeId& id) {
    Lost(id, "connection reset");
    clock_.After(Delay(), [this, id] { nodes_.at(id)->LoseCoordinator("connection reset"); });
  }

  SimNode* AnyLive() {
    std::vector<SimNode*> live;
    for (const auto& [id, node] : nodes_) {
      if (!node->ended()) live.push_back(node.get());
    }
    return live.empty() ? nullptr : live[random_.Between(0, static_cast<int64_t>(live.size()) - 1)];
  }

  void PlanFault(TimePoint calm) {
    const TimePoint when = clock_.now() + random_.Between(milliseconds(100), milliseconds(20000));
    if (when >= calm) return;
    clock_.At(when, [this, calm] {
      Fault(calm);
      PlanFault(calm);
    });
  }

  void Fault(TimePoint calm) {
    if (random_.Chance(0.3)) return AddNode();
    SimNode* const node = AnyLive();
    if (node == nullptr) return;
    const Duration longest = std::max(Duration(milliseconds(1)), calm - clock_.now());
    const Duration length = std::min(random_.Between(milliseconds(10), milliseconds(15000)), longest);
    switch (random_.Between(0, 5)) {
      case 0:  // SIGKILL: the kernel closes the connection
        ++result_.kills;
        node->Kill();
        HangUp(node->id());
        break;
      case 1:  // power loss: nobody closes anything
        ++result_.kills;
        node->Kill();
        links_[node->id()].broken = true;
        break;
      case 2:
        ++result_.freezes;
        trace_.Line(clock_.now(), absl::StrCat(node->id(), " stopped for ", ToMillis(length), " ms"));
        node->Freeze();
        clock_.After(length, [node] { node->Thaw(); });
        break;
      case 3:
        ++result_.cuts;
        trace_.Line(clock_.now(), absl::StrCat(node->id(), " cut off for ", ToMillis(length), " ms"));
        links_[node->id()].cut_until = clock_.now() + length;
        if (random_.Chance(0.5)) clock_.After(length, [this, id = node->id()] { Reset(id); });
        break;
      case 4:
        ++result_.signals;
        trace_.Line(clock_.now(), absl::StrCat(node->id(), " gets SIGTERM"));
        node->Signal(SIGTERM);
        break;
      case 5:
        ++result_.stalls;
        trace_.Line(clock_.now(), absl::StrCat("the coordinator stands still for ", ToMillis(length), " ms"));
        coordinator_->Stall(clock_.now() + length);
        break;
    }
  }

  void Calm() {
    trace_.Line(clock_.now(), "calm");
    calm_ = true;
    habits_ = {.longest = seconds(5)};
    // Expelled or dismissed nodes end by themselves; what is missing to the minimum comes anew.
    for (int i = 0; i < policy_.max_nodes; ++i) {
      clock_.After(seconds(20) + random_.Between(milliseconds(0), milliseconds(500)), [this] { AddNode(); });
    }
  }

  Random random_;
  Trace trace_;
  SimClock clock_;
  RoundPolicy policy_;
  WorkerHabits habits_{.fails = 0.3, .deaf = 0.05, .longest = seconds(120)};
  bool calm_ = false;
  std::map<NodeId, Link> links_;
  std::map<NodeId, std::unique_ptr<SimNode>> nodes_;
  std::unique_ptr<SimCoordinator> coordinator_;
  SimResult result_;
};

}  // namespace

SimResult RunSeed(uint64_t seed, bool print) {
  World world(seed, print);
  return world.Run();
}

}  // namespace ddprun::sim
