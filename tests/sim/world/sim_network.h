// Packets between hosts: each is delayed independently, and may be duplicated, reordered or lost.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "tests/sim/world/random.h"
#include "tests/sim/world/sim_clock.h"

namespace ddprun::sim {

using HostId = int;

struct Packet {
  enum class Kind { kHello, kData, kAck, kReset };  // sim_tcp.h defines their meaning

  HostId from = 0;
  HostId to = 0;
  uint64_t connection = 0;
  Kind kind = Kind::kAck;
  int port = 0;      // kHello: port of the listener
  uint64_t seq = 0;  // kHello, kData
  uint64_t ack = 0;  // all kinds except kReset: all segments before this number have arrived
  bool fin = false;  // kData: no data follows; the payload is empty
  std::string payload = {};
};

// Quality of all paths. It applies to each packet independently, so packets may overtake each other.
struct PathQuality {
  Duration min_delay = std::chrono::microseconds(50);
  Duration max_delay = milliseconds(5);
  double loss = 0;   // probability of loss
  double twice = 0;  // probability of duplication
};

// A fault between two sets of hosts, in one direction.
struct Disturbance {
  std::vector<HostId> from = {};  // empty: all hosts
  std::vector<HostId> to = {};    // empty: all hosts
  double loss = 0;                // probability of loss; 1: no packet arrives
  Duration min_delay{0};          // added to PathQuality::min_delay
  Duration max_delay{0};          // added to PathQuality::max_delay
};

// Packets from a host to itself are neither lost nor disturbed.
class SimNetwork {
 public:
  using Receive = std::function<void(const Packet&)>;
  using DisturbanceId = uint64_t;

  SimNetwork(SimClock* clock, Random random, PathQuality quality);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // Returns 0, 1, 2, ... in the order of the calls. `receive` is called for each packet that arrives while
  // the host is up.
  HostId AddHost(Receive receive);
  void Send(Packet packet);

  // A host that is down neither sends nor receives. Packets in flight to it are lost.
  void SetUp(HostId host, bool up) { hosts_[host].up = up; }
  bool up(HostId host) const { return hosts_[host].up; }
  DisturbanceId Disturb(Disturbance disturbance);
  void Heal(DisturbanceId id) { disturbances_.erase(id); }
  // Removes all disturbances and applies `quality` to all paths.
  void HealAll(PathQuality quality);

  int64_t num_sent() const { return num_sent_; }
  int64_t num_lost() const { return num_lost_; }
  int64_t num_twice() const { return num_twice_; }

 private:
  struct Host {
    Receive receive;
    bool up = true;
  };
  void Deliver(Packet packet, Duration delay);

  SimClock* const clock_;
  Random random_;
  PathQuality quality_;
  std::vector<Host> hosts_;
  std::map<DisturbanceId, Disturbance> disturbances_;
  DisturbanceId next_disturbance_ = 1;
  int64_t num_sent_ = 0;
  int64_t num_lost_ = 0;
  int64_t num_twice_ = 0;
};

}  // namespace ddprun::sim
