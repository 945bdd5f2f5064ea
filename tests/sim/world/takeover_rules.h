// Invariants of a job with a register, across all of its coordinators.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/charter/lead.h"
#include "rendezvous/core/charter.h"
#include "rendezvous/core/round_machine.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {

// The largest drift of a host's clock in jobs with a register, in millionths: two clocks differ by up to a tenth. The lead allows for twice
// as much.
inline constexpr int kDriftOfRegistered = 45'000;
inline int DriftPpm(const Settings& settings) {
  return settings.with_register ? kDriftOfRegistered : SimHost::kSmallDriftPpm;
}

// - At any true instant all workers that run belong to one round. No worker runs when a coordinator begins to lead, unless the job
//   is over, so that its workers have their grace period and no round follows.
// - At most one coordinator renews fences: what a coordinator has promised its nodes has ended when another one takes over
//   from it, and it promises nothing afterwards.
// - No worker runs when all that coordinators have promised has ended, except in the grace period of a job that is over.
// - Epochs, rounds and counts of restarts never decrease.
// - A round starts, and a job that is over dismisses its nodes, only when the register knows it. So every later coordinator
//   does.
// - A closed job stays closed.
// - While nothing is disturbed, no coordinator is deposed, and a job with an agent has a coordinator within three leases. With
//   voters, only as long as a quorum of them lives, and within the time of ten votes more: each takes a round trip, and that of a
//   packet which is repeated.
class TakeoverRules {
 public:
  // A host whose workers run, and their round.
  using Running = std::vector<std::pair<std::string, int64_t>>;

  // can_have_leader: whether the processes that keep the register live.
  TakeoverRules(const SimJob* job, std::function<Running()> running, std::function<bool()> can_have_leader)
      : job_(*job), running_(std::move(running)), can_have_leader_(std::move(can_have_leader)) {}

  // --- Events

  // The register's record has changed.
  void Wrote(const RegisterRecord& before, const RegisterRecord& now);
  // The process `id` leads.
  //   machine: null: the job is new.
  void Began(const std::string& id, int64_t epoch, const RoundMachine* machine);
  void Lost(const std::string& id, const std::string& why);
  // A coordinator is about to send `message`.
  void Sent(const std::string& id, const proto::CoordinatorMessage& message);
  // A fault that a healthy coordinator may not survive lasts until then.
  void DisturbedUntil(TimePoint end) { disturbed_until_ = std::max(disturbed_until_, end); }
  // After each event of the simulation.
  //   needs_leader: an agent runs; leads: a process leads.
  void Check(bool needs_leader, bool leads);

  // Whether the register says that the job is over, so that it has no further leader.
  bool closed() const { return lead_ && lead_->state == Lead::State::kClosed; }
  // How the newest charter says that the job has ended.
  const std::optional<Charter::End>& end() const { return charter_.end; }
  int64_t rounds_resumed() const { return rounds_resumed_; }  // sealed by coordinators that have taken over
  int64_t takeovers() const { return takeovers_; }            // without a hand-over
  int64_t hand_overs() const { return hand_overs_; }
  int64_t succeeded() const { return succeeded_; }

 private:
  void Broken(const std::string& rule) const { job_.trace->Broken(now(), rule); }
  TimePoint now() const { return job_.clock->now(); }
  Duration lease() const { return job_.settings->rules.lease; }
  void Started(const std::string& id, const proto::Start& start);

  const SimJob& job_;
  const std::function<Running()> running_;
  const std::function<bool()> can_have_leader_;

  // The register.
  std::optional<Lead> lead_;
  Charter charter_;
  bool has_charter_ = false;

  // What coordinators have done.
  std::map<std::string, int64_t> epochs_;  // of the processes that have led, by their ids
  int64_t epoch_ = 0;                      // the newest one that has begun
  TimePoint promise_end_ = SimClock::kStart;
  std::optional<int64_t> round_;  // the last one that has started
  int64_t restarts_ = 0;          // as the last Start has it

  TimePoint disturbed_until_ = SimClock::kStart;
  bool needs_leader_ = false;            // of the last Check
  TimePoint led_at_ = SimClock::kStart;  // the last time at which the job had a leader, or no agent
  int64_t rounds_resumed_ = 0, takeovers_ = 0, hand_overs_ = 0, succeeded_ = 0;
};

}  // namespace ddprun::sim
