// Simulated TCP over SimNetwork: messages arrive once and in order, or the connection ends.
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

// One end of a connection. A value type: once the connection has ended, calls with it have no effect.
struct SimSocket {
  HostId host = -1;
  uint64_t connection = 0;
  bool operator==(const SimSocket&) const = default;
};

enum class StreamEnd {
  kRefused,   // the host is up, but the port has no listener
  kReset,     // the peer reset the connection, or its host does not know it
  kTimedOut,  // no acknowledgement for too long
  kHungUp,    // the peer sends no more data
};

// A model of TCP as its users see it. Segments are whole messages with sequence numbers. They are
// acknowledged cumulatively, kept until then, and retransmitted after a timeout that doubles with each
// attempt. A host answers a packet of an unknown connection with a reset, so a restarted host resets old
// connections, and a host without power does not answer.
//   Order: handlers are invoked when packets arrive, never from within a call. `on_end` is invoked once,
//          last, and never after this side has called Close or Reset.
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
  // Closes the sending direction. Messages of the peer still arrive.
  void Shutdown(SimSocket socket);
  // As at the exit of a process: sent messages are still delivered; messages that arrive are
  // answered with a reset.
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
  // Invariants: unacked is ordered by seq without gaps and ends before next_seq; ahead holds only seqs >
  // expected.
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
    std::optional<TimePoint> timer_at;  // the valid timer; earlier ones are ignored
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
