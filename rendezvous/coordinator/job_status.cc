#include "rendezvous/coordinator/job_status.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/step_times.h"
#include "boost/json/array.hpp"
#include "rendezvous/core/round_text.h"
#include "rendezvous/core/stragglers.h"

namespace ddprun {
namespace {

absl::string_view Name(RoundMachine::State state) {
  switch (state) {
    case RoundMachine::State::kGathering:
      return "gathering";
    case RoundMachine::State::kRunning:
      return "running";
    case RoundMachine::State::kDraining:
      return "draining";
    case RoundMachine::State::kClosed:
      return "closed";
    case RoundMachine::State::kHandedOver:
      return "handed over";
  }
  return "?";
}

absl::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return "waiting";
    case Phase::kRunning:
      return "running";
    case Phase::kSucceeded:
      return "succeeded";
    case Phase::kStopping:
      return "stopping";
    case Phase::kLost:
      return "lost";
  }
  return "?";
}

boost::json::string_view Json(absl::string_view s) { return {s.data(), s.size()}; }

boost::json::object NodeStatus(const Member& member, TimePoint now) {
  boost::json::object node{{"id", member.info.id.value()},
                           {"host", member.info.host},
                           {"addr", member.info.addr},
                           {"state", Json(Name(member.phase))},
                           {"nproc", member.info.nproc},
                           {"group_rank", nullptr},
                           {"first_rank", nullptr},
                           {"step", nullptr},
                           {"phase", member.progress.phase},
                           {"excluded", member.excluded},
                           {"to_be_drained", member.drain.has_value()}};
  if (member.rank && member.phase != Phase::kWaiting) {
    node["group_rank"] = member.rank->value();
    node["first_rank"] = member.first_rank.value();
    if (member.progress.step) node["step"] = *member.progress.step;
  }
  if (member.info.leased) node["lease_left_ms"] = ToMillis(member.lease_end - now);
  return node;
}

boost::json::array MissingNodes(const RoundMachine& machine, TimePoint now) {
  boost::json::array missing;
  for (const AbsentNode& absent : machine.Absent()) {
    boost::json::object node{
        {"host", absent.host}, {"why", absent.why ? AbsenceText(*absent.why) : ""}, {"lost_ms_ago", nullptr}};
    if (absent.since) node["lost_ms_ago"] = (now - *absent.since) / milliseconds(1);
    missing.push_back(std::move(node));
  }
  return missing;
}

int64_t ToMicros(Duration d) { return std::chrono::duration_cast<std::chrono::microseconds>(d).count(); }

// The ranks in ascending order; if they are many, stragglers and those with the longest own times.
boost::json::array StepTimesOf(const std::map<Rank, Stragglers::Timed>& ranks) {
  constexpr size_t kMost = 64;
  std::vector<std::map<Rank, Stragglers::Timed>::const_iterator> shown;
  for (auto it = ranks.begin(); it != ranks.end(); ++it) shown.push_back(it);
  if (shown.size() > kMost) {
    const auto key = [](const Stragglers::Timed& t) {
      const bool known = t.times.communication.has_value();
      return std::tuple(t.straggles(), known, known ? t.times.own() : t.times.step);
    };
    std::nth_element(shown.begin(), shown.begin() + kMost, shown.end(),
                     [&key](const auto& a, const auto& b) { return key(a->second) > key(b->second); });
    shown.resize(kMost);
    std::sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a->first < b->first; });
  }
  boost::json::array array;
  for (const auto& it : shown) {
    const auto& [rank, timed] = *it;
    boost::json::object entry{{"rank", rank.value()},
                              {"host", timed.host},
                              {"step_us", ToMicros(timed.times.step)},
                              {"spread_us", ToMicros(timed.times.spread)},
                              {"data_us", ToMicros(timed.times.data)},
                              {"communication_us", nullptr},
                              {"straggler", timed.straggles()}};
    if (timed.times.communication) entry["communication_us"] = ToMicros(*timed.times.communication);
    array.push_back(std::move(entry));
  }
  return array;
}

}  // namespace

boost::json::object JobStatus(absl::string_view run_id, const RoundMachine& machine, const EventRing& events,
                              TimePoint now) {
  using State = RoundMachine::State;
  boost::json::array nodes;
  for (const auto& [id, member] : machine.membership().members()) nodes.push_back(NodeStatus(member, now));
  const bool waits = machine.state() == State::kGathering || machine.membership().count(Phase::kWaiting) > 0;
  const bool closed = machine.state() == State::kClosed;
  const EventRing::Event* last = events.last();
  boost::json::object job{
      {"run_id", Json(run_id)},
      {"state", Json(Name(machine.state()))},
      {"outcome", closed ? Json(ToString(machine.outcome())) : ""},
      {"outcome_reason", closed ? ToText(machine.end()) : ""},
      {"round", machine.round() ? machine.round()->value() : -1},
      {"restarts", machine.restarts()},
      {"max_restarts", machine.policy().max_restarts},
      {"min_nodes", machine.policy().min_nodes},
      {"max_nodes", machine.policy().max_nodes},
      {"furthest_step", nullptr},
      {"last_failure", machine.last_failure()},
      {"standstill", machine.standstill()},
      {"last_transition", last == nullptr ? "" : last->reason},
      {"last_transition_ms_ago", last == nullptr ? 0 : (now - last->at) / milliseconds(1)},
      {"last_event", last == nullptr ? 0 : last->seq},
      {"waiting", waits ? ToText(machine.WhatIsWaitedFor(now)) : ""},
      {"missing", MissingNodes(machine, now)},
      {"timed_ranks", 0},
      {"step_times", boost::json::array()},
      {"nodes", std::move(nodes)}};
  if (const Stragglers* const stragglers = machine.stragglers()) {
    job["timed_ranks"] = stragglers->ranks().size();
    job["step_times"] = StepTimesOf(stragglers->ranks());
  }
  if (machine.furthest_step()) job["furthest_step"] = *machine.furthest_step();
  return job;
}

}  // namespace ddprun
