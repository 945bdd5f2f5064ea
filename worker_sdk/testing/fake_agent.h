// The agent's end of the socket named by DDPRUN_AGENT_SOCKET, for one worker.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "base/worker_message.h"

namespace ddprun {

// Refuses connections until Listen() is called.
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

  // Returns the next report; nullopt if no report has arrived.
  std::optional<WorkerReport> Next();
  // Returns the next report that satisfies `fits`, and discards the reports before it. Returns nullopt if
  // the timeout passes or the worker closes its connection.
  std::optional<WorkerReport> Await(const std::function<bool(const WorkerReport&)>& fits,
                                    Duration timeout = seconds(30));

  // Sends a request to the worker. REQUIRES: a report was received.
  void Ask(const AgentRequest& request);
  // Sends raw bytes. REQUIRES: a report was received.
  void Say(std::string_view packet);

 private:
  const int listener_;
  int connection_ = -1;
  std::string name_;
};

}  // namespace ddprun
