// One simulated host: its clock, its power state, and the calls deferred while it is suspended.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "tests/sim/world/random.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/sim_tcp.h"

namespace ddprun::sim {

// All code on a host runs through Run, After or At. Calls are deferred while the host is suspended, and
// dropped if the host loses its power.
class SimHost {
 public:
  static constexpr int kSmallDriftPpm = 200;

  // drift_ppm: the largest drift of the host's clock.
  SimHost(std::string name, SimClock* sim, SimTcp* tcp, SimNetwork* network, Random random,
          int drift_ppm = kSmallDriftPpm)
      : name_(std::move(name)),
        id_(tcp->AddHost()),
        sim_(sim),
        tcp_(tcp),
        network_(network),
        // The host's clock is ahead of the simulated clock by up to one year.
        clock_(sim, random.Between(Duration(0), Duration(std::chrono::hours(24 * 365))),
               static_cast<int>(random.Between(-drift_ppm, drift_ppm))) {}
  SimHost(const SimHost&) = delete;
  SimHost& operator=(const SimHost&) = delete;

  const std::string& name() const { return name_; }
  std::string addr() const { return absl::StrCat("10.0.0.", id_); }
  HostId id() const { return id_; }
  const HostClock& clock() const { return clock_; }
  TimePoint now() const { return clock_.now(); }
  TimePoint sim_now() const { return sim_->now(); }
  bool powered() const { return powered_; }
  bool suspended() const { return suspended_; }
  // Simulated time of the last call of Resume.
  TimePoint resumed_at() const { return resumed_at_; }

  void Run(std::function<void()> what) {
    if (!powered_) return;
    if (suspended_) {
      held_.push_back(std::move(what));
    } else {
      what();
    }
  }
  // `d` is simulated time. For short durations the drift of the host's clock is negligible.
  void After(Duration d, std::function<void()> what) {
    sim_->After(d, [this, boot = boot_, what = std::move(what)]() mutable {
      if (boot == boot_) Run(std::move(what));
    });
  }
  // Runs `what` when the host's clock shows `mine`.
  void At(TimePoint mine, std::function<void()> what) {
    After(clock_.ToSim(mine) - sim_->now(), std::move(what));
  }

  void PowerOff() {
    powered_ = suspended_ = false;
    ++boot_;
    held_.clear();
    tcp_->PowerOff(id_);
  }
  void PowerOn() {
    powered_ = true;
    tcp_->PowerOn(id_);
  }
  // Packets that arrive while the host is suspended are lost, since the kernel is suspended as well.
  void Suspend() {
    if (!powered_) return;
    suspended_ = true;
    network_->SetUp(id_, false);
  }
  void Resume() {
    if (!suspended_) return;
    suspended_ = false;
    resumed_at_ = sim_->now();
    network_->SetUp(id_, true);
    const uint64_t boot = boot_;
    for (std::deque<std::function<void()>> held = std::exchange(held_, {}); !held.empty(); held.pop_front()) {
      if (boot == boot_) Run(std::move(held.front()));
    }
  }

 private:
  const std::string name_;
  const HostId id_;
  SimClock* const sim_;
  SimTcp* const tcp_;
  SimNetwork* const network_;
  const HostClock clock_;
  bool powered_ = true;
  bool suspended_ = false;
  TimePoint resumed_at_;
  uint64_t boot_ = 0;
  std::deque<std::function<void()>> held_;
};

}  // namespace ddprun::sim
