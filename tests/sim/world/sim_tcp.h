// Connections above packets, as the kernels of the simulated hosts make them: bytes arrive in order, once,
// late, or the connection ends.
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

// One end of a connection. A value: it may outlive the connection, and then does nothing.
struct SimSocket {
  HostId host = -1;
  uint64_t connection = 0;
  bool operator==(const SimSocket&) const = default;
};

enum class StreamEnd {
  kRefused,   // nobody listens there; the host is up
  kReset,     // the other host knows nothing of the connection (any more), or its program reset it
  kTimedOut,  // too long without an acknowledgement
  kHungUp,    // the other side will send nothing more
};

// TCP in what matters to its users. Segments are whole messages with sequence numbers, acknowledged
// cumulatively, kept until they are, and sent again after a time that doubles with each try. A packet for a
// connection that a host does not know is answered with a reset, so that a host which has restarted says so,
// and one without power says nothing.
//   Order: handlers are called when packets arrive, also from inside a handler of another connection, but
//          never from inside a call; `on_end` once, last, and not at all once this side has called Close or
//          Reset.
class SimTcp {
 public:
  struct Handlers {
    std::function<void()> on_open = {};
    std::function<void(const std::string&)> on_message = {};
    std::function<void(StreamEnd)> on_end = {};
  };
  // The handlers for a connection that has come; `peer` is the other host.
  using Accept = std::function<Handlers(SimSocket socket, HostId peer)>;

  SimTcp(SimClock* clock, SimNetwork* network) : clock_(clock), network_(network) {}
  SimTcp(const SimTcp&) = delete;
  SimTcp& operator=(const SimTcp&) = delete;

  HostId AddHost();
  void Listen(HostId host, int port, Accept accept) { listeners_[{host, port}] = std::move(accept); }
  void Unlisten(HostId host, int port) { listeners_.erase({host, port}); }

  SimSocket Connect(HostId from, HostId to, int port, Handlers handlers);
  void Send(SimSocket socket, std::string message);
  // Nothing follows; what the other side sends still arrives.
  void Shutdown(SimSocket socket);
  // As by the end of a process: what was sent still goes out, what comes is answered with a reset.
  void Close(SimSocket socket);
  // Forgets the connection and what was not acknowledged; the other side is told.
  void Reset(SimSocket socket);
  // The host's kernel is gone, with all that it knew. Nobody is told.
  void PowerOff(HostId host);
  void PowerOn(HostId host) { network_->SetUp(host, true); }

 private:
  struct Segment {
    uint64_t seq = 0;
    bool fin = false;
    std::string payload;
    TimePoint first_sent;
    bool lost = false;  // a timeout was over since it was sent last
  };
  // Invariants: unacked is ordered by seq without gaps and ends before next_seq; ahead holds only seqs >
  // expected.
  struct End {
    SimSocket socket;
    HostId peer = 0;
    int port = 0;  // > 0: this side connects, and has had no answer yet
    bool open = false;
    int port_here = 0;  // > 0: this side was connected to, there
    Handlers handlers = {};
    std::deque<Segment> unacked = {};
    uint64_t next_seq = 0;
    uint64_t expected = 0;
    std::map<uint64_t, Packet> ahead = {};
    bool fin_sent = false;
    bool fin_received = false;
    bool closed = false;  // by the program: its handlers are not called any more
    bool dead = false;    // not in ends_ any more
    Duration rto{};
    TimePoint rto_end;                  // of unacked.front()
    std::optional<TimePoint> timer_at;  // the timer that counts
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
  void Finish(const EndPtr& end, StreamEnd why);  // Forget, and tell the program
  void MaybeForget(const EndPtr& end);

  SimClock* const clock_;
  SimNetwork* const network_;
  std::map<std::pair<HostId, int>, Accept> listeners_;
  std::map<std::pair<HostId, uint64_t>, EndPtr> ends_;
  uint64_t next_connection_ = 1;
};

}  // namespace ddprun::sim
