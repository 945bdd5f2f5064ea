// The agent's end of the socket named by DDPRUN_AGENT_SOCKET, for one worker.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

  // Returns the next report; nullopt if no report has arrived. Accepts a connection if there is none.
  std::optional<WorkerReport> Next();
  // Returns the next report that satisfies `fits`, and discards the reports before it. Returns nullopt if
  // the timeout passes or the worker closes its connection.
  std::optional<WorkerReport> Await(const std::function<bool(const WorkerReport&)>& fits,
                                    Duration timeout = seconds(30));

  // Likewise for messages about survival. The two kinds do not disturb each other.
  std::optional<WorkerSurvival> NextSurvival();
  // The next one with this state, within the timeout; discards those before it.
  std::optional<WorkerSurvival> AwaitSurvival(SurvivalState state, Duration timeout = seconds(30));
  // Returns once the worker has closed its connection, or after the timeout.
  bool AwaitClose(Duration timeout = seconds(30));

  // Sends a request to the worker. REQUIRES: a message was received.
  void Ask(const AgentRequest& request);
  void Offer(const RoundOffer& offer) { Say(Encode(offer)); }
  // Sends raw bytes, which are lost if the worker has closed the connection. REQUIRES: a message was received.
  void Say(std::string_view packet);

  // Closes the connection. The next one is accepted when a message is received.
  void HangUp();
  // The descriptor that is readable when a message, a connection or the end of the connection can be received.
  int fd() const { return connection_ >= 0 ? connection_ : listener_; }
  // The pages of memory that were announced, of all connections. Their descriptors are closed.
  const std::vector<WorkerPage>& pages() const { return pages_; }
  // The worker has closed its connection, and all messages are received.
  bool closed() const { return closed_; }

 private:
  // Receives what has arrived.
  void Receive();
  // Waits until more can be received. False: the deadline has passed, or nothing more comes.
  bool AwaitMore(TimePoint deadline);

  const int listener_;
  int connection_ = -1;
  bool closed_ = false;
  std::deque<WorkerReport> reports_;
  std::deque<WorkerSurvival> survivals_;
  std::vector<WorkerPage> pages_;
  std::string name_;
};

}  // namespace ddprun
