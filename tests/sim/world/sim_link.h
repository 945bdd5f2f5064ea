// A CoordinatorLink over simulated TCP or, for the coordinator's own agent, within one process.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/client/link_watch.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_timer.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

class SimCoordinator;

// Checks that every message parses and that none follows a Dismiss.
//   Order: Find first, then Start after Find has succeeded.
class SimLink final : public CoordinatorLink {
 public:
  static constexpr int kPort = 29500;
  struct Place {
    SimHost* host = nullptr;
    SimTcp* tcp = nullptr;
    Trace* trace = nullptr;
    HostId coordinator_host = 0;
    int port = kPort;
    SimCoordinator* local = nullptr;  // the coordinator in this process; null: it is elsewhere
    SimTimer::InProcess in_agent;
    std::function<void(const proto::CoordinatorMessage&)> observe;  // called before the agent's handler
    std::function<void(const proto::AgentMessage&)> observe_sent;
  };

  explicit SimLink(Place place);
  ~SimLink() override;
  SimLink(const SimLink&) = delete;
  SimLink& operator=(const SimLink&) = delete;

  // Tries to connect for at most `limit`. Calls `done` exactly once, but never from within Find. If `once`, a
  // refused connection ends the search, because it shows that the coordinator's process has exited.
  void Find(Duration limit, bool once, std::function<void(const absl::Status&)> done);
  void Start(Handlers handlers) override;
  void Send(const proto::AgentMessage& message) override;
  void Close() override;
  // Resets the connection on both sides, as a middlebox does. Returns false if the link is not connected.
  bool Reset();

 private:
  void Connect();
  void Found(const absl::Status& status);
  void OnBytes(const std::string& bytes);
  void OnEnd(StreamEnd why);
  void SetTimer();
  void OnTimer();
  void LocalHeartbeat(uint64_t beat);
  void SendHeartbeat();
  void Lose(const std::string& why);
  // Runs `what` in the agent, unless this link is closed first.
  void InAgent(std::function<void()> what);
  void After(Duration d, std::function<void()> what);

  const Place place_;
  std::function<void(const absl::Status&)> found_;
  Handlers handlers_;
  SimTimer timer_;
  LinkWatch watch_;
  std::optional<SimSocket> socket_;
  uint64_t local_peer_ = 0;
  Duration local_interval_;
  uint64_t local_beat_ = 0;  // number of the current series of local heartbeats
  Duration pause_ = milliseconds(20);
  Duration connect_timeout_ = seconds(1);
  int attempt_ = 0;  // number of the connection attempt; callbacks of earlier attempts are ignored
  bool once_ = false;
  TimePoint find_end_;
  bool open_ = false;
  bool dismissed_ = false;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
