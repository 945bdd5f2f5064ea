// The register of a simulated job: one linearizable record that all hosts reach, and that no host keeps.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "rendezvous/charter/charter_register.h"
#include "tests/sim/world/random.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_timer.h"

namespace ddprun::sim {

// Requests do not use SimNetwork: a host may be cut off from the register, from the other hosts, or from both.
//
// Each request and each answer has a delay of its own. While the service is down, and for a host that is cut off, a request is
// refused, is lost, or waits and is carried out later, after its sender has timed out; an answer is lost.
class SimRegister {
 public:
  using Observer = std::function<void(const RegisterRecord& before, const RegisterRecord& now)>;

  SimRegister(SimClock* clock, Random random) : clock_(clock), random_(std::move(random)) {}
  SimRegister(const SimRegister&) = delete;
  SimRegister& operator=(const SimRegister&) = delete;

  // A process's client of the register. `in_process` runs its callbacks in the process.
  std::unique_ptr<CharterRegister> Connect(SimHost* host, SimTimer::InProcess in_process);
  const RegisterRecord& record() const { return record_; }
  // `observer` is called for each write.
  void Observe(Observer observer) { observer_ = std::move(observer); }

  // --- Faults. Faults of one kind may overlap, except SetSlow and SetLossy.

  // The service is down, for example because it elects a leader, from SetDown(true) to SetDown(false).
  void SetDown(bool down) { down_ += down ? 1 : -1; }
  void SetCut(HostId host, bool cut) { cuts_[host] += cut ? 1 : -1; }
  void SetSlow(Duration delay) { slow_ = delay; }  // added to each delay, at most
  void SetLossy(double loss) { loss_ = loss; }     // probability that a request is lost, late or not answered
  // The other faults end. Requests that wait are carried out soon.
  void HealAll();

 private:
  class Client;
  using Apply = std::function<SwapResult()>;

  // Carries out `apply` at the register, and calls `answer` when its result reaches the host. Either may not happen.
  //   refused: called instead if the service refuses the request.
  void Call(HostId host, Apply apply, std::function<void(SwapResult)> answer, std::function<void()> refused);
  // Carries out `apply` when the service is up.
  void Arrive(HostId host, Apply apply, std::function<void(SwapResult)> answer);
  SwapResult Swap(const RegisterRecord& expected, const std::string& lead,
                  const std::optional<std::string>& charter);
  Duration Delay();
  bool Cut(HostId host) { return cuts_[host] > 0; }

  SimClock* const clock_;
  Random random_;
  RegisterRecord record_;
  Observer observer_;
  std::map<HostId, int> cuts_;
  int down_ = 0;
  Duration slow_{};
  double loss_ = 0;
};

}  // namespace ddprun::sim
