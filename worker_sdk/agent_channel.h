// The connection of a worker to its agent: an abstract Unix socket with packets of base/worker_message.h.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/time.h"
#include "base/worker_message.h"
#include "ddprun/status.h"
#include "os/descriptor.h"

namespace ddprun {

// One connection at a time, which an exec closes. If it breaks, the next TrySend connects again.
//   Threads: one sends, and one receives; they may be different ones.
class AgentChannel {
 public:
  using Message = std::variant<AgentRequest, RoundOffer>;
  using Connection = std::shared_ptr<const UniqueFd>;  // null: none

  // Memory that the agent may read while a connection exists; its descriptor, which must outlive the channel, and the first
  // packet of each connection.
  struct SharedPage {
    int fd = -1;  // -1: none is shared
    WorkerPage packet = {};
  };

  // `socket_name`: DDPRUN_AGENT_SOCKET. Empty: there is no agent, and nothing is sent.
  explicit AgentChannel(std::string socket_name) : AgentChannel(std::move(socket_name), SharedPage{}) {}
  AgentChannel(std::string socket_name, SharedPage page);
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  // Sends one packet. Does not block. Connects if there is no connection. Returns false if the packet was not sent: there is no
  // agent, or its socket is full.
  bool TrySend(std::string_view packet);
  // Sends one packet; waits until the socket has room, at most for `limit`. An error closes the connection.
  //   what:   describes the packet in errors.
  //   Errors: kUnavailable: there is no connection, or it broke; kDeadlineExceeded: the agent reads nothing.
  Status Send(std::string_view packet, std::string_view what, Duration limit);
  // The first packet of every connection, after that of the shared page. Sends it over the connection that exists, as Send does;
  // without one, connects.
  //   Errors: those of Send.
  Status Introduce(std::string packet, std::string_view what, Duration limit);
  // From now on, `packet` is the first one of every new connection.
  void SetIntroduction(std::string packet) { introduction_ = std::move(packet); }

  [[nodiscard]] Connection connection() const;
  // Closes `connection`, if it is still that of the channel.
  void Close(const Connection& connection);
  // An eventfd that is readable after connection() has changed, until ClearChanged().
  [[nodiscard]] int changed_fd() const { return changed_fd_.get(); }
  void ClearChanged();

  // The next message that has arrived on `connection`; nullopt if none has. Skips packets that it does not know. The agent has
  // another version of the messages: says so on stderr, once, and sends nothing from then on.
  //   ended: set to true if the agent has closed the connection and all messages are read; otherwise unchanged.
  std::optional<Message> Receive(const Connection& connection, bool* ended);

 private:
  enum class Wait { kNo, kYes };
  // As connect(2) and send(2) for this kind of socket. Wait::kYes: within the socket's time limit.
  Status Connect(Wait wait, Duration limit);
  void Replace(Connection connection);

  const std::string name_;
  const SharedPage page_;
  const UniqueFd changed_fd_;
  std::string introduction_;                // empty: none. Of the sender
  std::atomic<bool> other_version_{false};  // the agent has another version of worker_message.h
  mutable std::mutex mu_;
  Connection connection_;  // blocking mode. Guarded by mu_
};

}  // namespace ddprun
