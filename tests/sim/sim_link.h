// An agent's way to its coordinator: finds it, joins, sends heartbeats, and notices when it has gone silent.
// What rendezvous/client does over gRPC, over simulated TCP; or beside the coordinator in the same process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "proto/rendezvous.pb.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

class SimCoordinator;

// Handlers are called as packets and timers come, on the agent's host; the agent holds them back while it is
// stopped.
//   Checks: nothing comes after the coordinator's last word.
class SimLink {
 public:
  struct Place {
    SimHost* host = nullptr;
    SimTcp* tcp = nullptr;
    Trace* trace = nullptr;
    HostId coordinator_host = 0;
    SimCoordinator* local = nullptr;  // not null: it is in this process
  };
  struct Handlers {
    std::function<void()> on_open;  // to say the join now
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(TimePoint sent)> on_answered;  // the newest heartbeat that was, on the host's clock
    std::function<void(proto::Heartbeat&)> heartbeat;
    std::function<void(const std::string&)> on_lost;       // once it was open
    std::function<void(const std::string&)> on_not_found;  // within the limit
    Duration heartbeat_interval{};
  };
  static constexpr int kPort = 29500;

  SimLink(Place place, Handlers handlers);
  ~SimLink();
  SimLink(const SimLink&) = delete;
  SimLink& operator=(const SimLink&) = delete;

  // Looks for the coordinator for `limit`. With `once` a port that is refused ends that: its process is gone.
  void Find(Duration limit, bool once);
  void Send(const proto::AgentMessage& message);  // nothing before it is open
  // Says what was sent before, then hangs up. No handler is called afterwards.
  void Close();
  // As by something between the two hosts. False: there is no connection over the network.
  bool Reset();
  // What comes in while the agent is stopped is held back here, in order.
  void set_hold(std::function<void(std::function<void()>)> in_agent) { in_agent_ = std::move(in_agent); }

 private:
  void Connect();
  void OnBytes(const std::string& bytes);
  void OnEnd(StreamEnd why);
  void OnMessage(const proto::CoordinatorMessage& message);
  void Heartbeat(Duration interval);
  void Lose(const std::string& why);
  // Runs `what` in the agent unless this link is gone by then.
  void InAgent(std::function<void()> what);
  void After(Duration d, std::function<void()> what);

  const Place place_;
  const Handlers handlers_;
  std::function<void(std::function<void()>)> in_agent_;
  std::optional<SimSocket> socket_;
  uint64_t local_peer_ = 0;
  TimePoint find_end_;
  Duration pause_ = milliseconds(20);
  bool once_ = false;
  bool open_ = false;
  bool welcomed_ = false;
  bool dismissed_ = false;
  int unanswered_ = 0;
  std::deque<TimePoint> sent_;  // heartbeats without an answer yet
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
