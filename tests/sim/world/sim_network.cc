#include "tests/sim/world/sim_network.h"

#include <algorithm>
#include <utility>

namespace ddprun::sim {
namespace {

constexpr Duration kLoopbackDelay = std::chrono::microseconds(20);

bool Has(const std::vector<HostId>& hosts, HostId host) {
  return hosts.empty() || std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

}  // namespace

SimNetwork::SimNetwork(SimClock* clock, Random random, PathQuality quality)
    : clock_(clock), random_(std::move(random)), quality_(quality) {}

HostId SimNetwork::AddHost(Receive receive) {
  hosts_.push_back({std::move(receive)});
  return static_cast<HostId>(hosts_.size()) - 1;
}

void SimNetwork::Send(Packet packet) {
  if (!up(packet.from)) return;
  ++num_sent_;
  if (packet.from == packet.to) return Deliver(std::move(packet), kLoopbackDelay);
  Duration delay = random_.Between(quality_.min_delay, quality_.max_delay);
  bool lost = random_.Chance(quality_.loss);
  for (const auto& [id, d] : disturbances_) {
    if (!Has(d.from, packet.from) || !Has(d.to, packet.to)) continue;
    lost = lost || random_.Chance(d.loss);
    delay += random_.Between(d.min_delay, d.max_delay);
  }
  if (lost) {
    ++num_lost_;
    return;
  }
  if (random_.Chance(quality_.twice)) {
    ++num_twice_;
    Deliver(packet, delay + random_.Between(quality_.min_delay, 10 * quality_.max_delay));
  }
  Deliver(std::move(packet), delay);
}

void SimNetwork::Deliver(Packet packet, Duration delay) {
  clock_->After(delay, [this, packet = std::move(packet)] {
    const Host& host = hosts_[packet.to];
    if (host.up) host.receive(packet);
  });
}

SimNetwork::DisturbanceId SimNetwork::Disturb(Disturbance disturbance) {
  disturbances_[next_disturbance_] = std::move(disturbance);
  return next_disturbance_++;
}

void SimNetwork::HealAll(PathQuality quality) {
  disturbances_.clear();
  quality_ = quality;
}

}  // namespace ddprun::sim
