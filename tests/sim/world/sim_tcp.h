// Simulated TCP over SimNetwork: messages arrive exactly once and in order, or the connection ends.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/time.h"
#include "tests/sim/world/sim_network.h"

namespace ddprun::sim {

// One end of a connection, as a value. Calls that pass it have no effect after the connection has ended.
struct SimSocket {
  HostId host = -1;
  uint64_t connection = 0;
  bool operator==(const SimSocket&) const = default;
};

enum class StreamEnd {
  kRefused,   // the host is up, but the port has no listener
  kReset,     // the peer reset the connection, or the peer's host does not know the connection
  kTimedOut,  // no acknowledgement for too long
  kHungUp,    // the peer sends no more data
};

// A model of TCP as applications see it. A segment is a whole message with a sequence number.
// Acknowledgements are cumulative. The sender keeps each segment until it is acknowledged, and retransmits
// it after a timeout that doubles with each attempt. A host answers a packet of an unknown connection with a
// reset, so a host that has rebooted resets the connections from before the reboot. A host without power does
// not answer.
//   Order: handlers are invoked when packets arrive or timers fire, never from within a method of this class.
//          `on_end` is invoked at most once, after all other handlers, and never after this side has called
//          Close or Reset.
class SimTcp {
 public:
  struct Handlers {
    std::function<void()> on_open = {};
    std::function<void(const std::string&)> on_message = {};
    std::function<void(StreamEnd)> on_end = {};
  };
  // Returns the handlers for an accepted connection; `peer` is the other host.
  using Accept = std::function<Handlers(SimSocket socket, HostId peer)>;

  SimTcp(SimClock* clock, SimNetwork* network) : clock_(clock), network_(network) {}
  SimTcp(const SimTcp&) = delete;
  SimTcp& operator=(const SimTcp&) = delete;

  HostId AddHost();
  void Listen(HostId host, int port, Accept accept) { listeners_[{host, port}] = std::move(accept); }
  void Unlisten(HostId host, int port) { listeners_.erase({host, port}); }

  SimSocket Connect(HostId from, HostId to, int port, Handlers handlers);
  void Send(SimSocket socket, std::string message);
  // Closes the sending direction. Messages from the peer still arrive.
  void Shutdown(SimSocket socket);
  // Closes both directions, as the exit of a process does. Messages that were sent are still delivered.
  // Messages that arrive are answered with a reset.
  void Close(SimSocket socket);
  // Drops the connection with its unacknowledged messages, and sends a reset to the peer.
  void Reset(SimSocket socket);
  // Drops all connections and listeners of the host without a packet to any peer.
  void PowerOff(HostId host);
  void PowerOn(HostId host) { network_->SetUp(host, true); }

 private:
  struct Segment {
    uint64_t seq = 0;
    bool fin = false;
    std::string payload;
    TimePoint first_sent;
    bool lost = false;  // timed out since it was last sent
  };
  // Invariants: `unacked` has consecutive seqs, the last of which is next_seq - 1. Between calls, all seqs in
  // `ahead` are greater than `expected`.
  struct End {
    SimSocket socket;
    HostId peer = 0;
    int port = 0;  // > 0: this side is connecting and has no answer yet
    bool open = false;
    int port_here = 0;  // > 0: this side accepted the connection on this port
    Handlers handlers = {};
    std::deque<Segment> unacked = {};
    uint64_t next_seq = 0;
    uint64_t expected = 0;
    std::map<uint64_t, Packet> ahead = {};
    bool fin_sent = false;
    bool fin_received = false;
    bool closed = false;  // by the program; handlers are no longer invoked
    bool dead = false;    // removed from ends_
    Duration rto{};
    TimePoint rto_end;                  // of unacked.front()
    std::optional<TimePoint> timer_at;  // time of the valid timer; all others are ignored
  };
  using EndPtr = std::shared_ptr<End>;

  EndPtr Find(SimSocket socket) const;
  void Receive(HostId host, const Packet& packet);
  void OnHello(HostId host, const Packet& packet);
  void OnAck(const EndPtr& end, uint64_t ack);
  void OnData(const EndPtr& end, const Packet& packet);
  void Push(const EndPtr& end, std::string payload, bool fin);
  void Transmit(const End& end, const Segment& segment);
  void SendAck(const End& end);
  void SetTimer(const EndPtr& end);
  void OnTimer(const EndPtr& end);
  void Forget(const EndPtr& end);
  void Finish(const EndPtr& end, StreamEnd why);  // calls Forget, then on_end
  void MaybeForget(const EndPtr& end);

  SimClock* const clock_;
  SimNetwork* const network_;
  std::map<std::pair<HostId, int>, Accept> listeners_;
  std::map<std::pair<HostId, uint64_t>, EndPtr> ends_;
  uint64_t next_connection_ = 1;
};

}  // namespace ddprun::sim
