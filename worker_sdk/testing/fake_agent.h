// The agent's end of the socket named by DDPRUN_AGENT_SOCKET, for one worker.
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

  // The value of DDPRUN_AGENT_SOCKET.
  const std::string& name() const { return name_; }
  void Listen();

  // The next report; nullopt if none has arrived.
  std::optional<proto::WorkerReport> Next();
  // Discards reports until one satisfies `fits`, and returns that one. nullopt: the timeout passed, or the
  // worker closed its connection.
  std::optional<proto::WorkerReport> Await(const std::function<bool(const proto::WorkerReport&)>& fits,
                                           Duration timeout = seconds(30));

  // REQUIRES: a report was received.
  void Ask(const proto::AgentRequest& request);
  // Sends raw bytes. REQUIRES: a report was received.
  void Say(absl::string_view packet);

 private:
  const int listener_;
  int connection_ = -1;
  std::string name_;
};

}  // namespace ddprun
