// The agent's end of the socket of DDPRUN_AGENT_SOCKET, for one worker.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "proto/worker.pb.h"

namespace ddprun {

// Refuses connections until Listen().
//   Threads: one caller at a time.
class FakeAgent {
 public:
  FakeAgent();
  ~FakeAgent();
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  // For DDPRUN_AGENT_SOCKET.
  const std::string& name() const { return name_; }
  void Listen();

  // The next report, when one is there.
  std::optional<proto::WorkerReport> Next();
  // The next report that fits, those between passed over; nothing: none came in time.
  std::optional<proto::WorkerReport> Await(const std::function<bool(const proto::WorkerReport&)>& fits,
                                           Duration timeout = seconds(30));

  // REQUIRES: a report was received.
  void Ask(const proto::AgentRequest& request);
  // Asks in bytes of its own. REQUIRES: as Ask.
  void Say(absl::string_view packet);

 private:
  const int listener_;
  int connection_ = -1;
  std::string name_;
};

}  // namespace ddprun
