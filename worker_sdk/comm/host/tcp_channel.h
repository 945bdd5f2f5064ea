// The messages between two ranks of different nodes, on one TCP connection.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/channel.h"
#include "worker_sdk/comm/host/handshake.h"

namespace ddprun {

// Of the two ranks the lower one connects, at the first Send or Receive. Data that arrives before the matching Receive
// stays in the socket.
class TcpChannel : public Channel {
 public:
  // The two ends, for checks and error messages.
  struct Ends {
    int rank;
    int peer;
    int node;
    int peer_node;
    int64_t round;
    Duration silence_limit;
  };
  // What the lower rank needs to connect.
  struct Target {
    std::string address;
    Greeting greeting;
  };

  // `target`: set if this rank is the lower one; otherwise the channel waits for Accept.
  TcpChannel(const Ends& ends, std::optional<Target> target);
  // Discards what has arrived: otherwise closing the connection would reset it, and the peer could lose the end of what
  // was sent to it.
  ~TcpChannel() override;

  bool IsConnected() const { return static_cast<bool>(fd_); }
  // The peer has connected, and its greeting was answered.
  void Accept(UniqueFd fd);

  Moved Send(Transfer& transfer) override;
  Moved Receive(Transfer& transfer) override;
  bool IsExhausted() const override { return !error().ok() || (!fd_ && !target_); }

  // What to poll while a message is pending in the given directions.
  void AddPolls(bool sends, bool receives, std::vector<pollfd>& polls) const;
  // A message begins to wait: the time of silence before now does not count.
  void BeginWaiting() { last_moved_ = std::chrono::steady_clock::now(); }
  // Sets error() if the peer's node has not answered for the silence limit although a message is pending.
  void CheckSilence();

 private:
  // Precedes the payload of every message.
  struct Frame {
    static constexpr uint64_t kMagic = 0x3147534d4d4f4344;  // "DCOMMSG1"
    uint64_t magic = kMagic;
    int64_t round = 0;
    internal::Call call;
  };
  static_assert(sizeof(Frame) == 48);

  // Continues to connect. Returns whether the connection is usable now.
  bool Connect();
  void Use(UniqueFd fd);
  // Handles the errno of a connection that has failed. Returns kNone.
  Moved Broken(int error);

  const Ends ends_;
  const std::optional<Target> target_;
  std::optional<TcpConnecting> connecting_;
  UniqueFd fd_;                // set when the greetings are exchanged
  std::string ends_in_words_;  // of fd_
  TimePoint last_moved_ = {};
  Frame out_, in_;                       // of the messages in flight
  size_t out_moved_ = 0, in_moved_ = 0;  // bytes of them
};

}  // namespace ddprun
