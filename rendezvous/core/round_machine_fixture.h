// A test fixture for RoundMachine. Helpers such as Join("a") and Failed("a", 0) deliver events and return
// the effects as short strings.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/core/round_machine.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using State = RoundMachine::State;

constexpr JobRules kTwoToThree{.min_nodes = 2,
                               .max_nodes = 3,
                               .max_restarts = 1,
                               .first_last_call = seconds(30),
                               .last_call = seconds(10),
                               .join_timeout = seconds(600),
                               .lease = seconds(5)};

// Returns an order as a short string, such as "a:start r0 node0/2 rank0/2 n0 m:1", "b:stop r0",
// "a:report r0" or "a:dismiss failed". Returns an empty string for notes and waiting notices.
inline std::string Word(const RoundEffect& effect) {
  if (const auto* e = std::get_if<Assign>(&effect)) {
    const Assignment& a = e->assignment;
    return absl::StrCat(e->node.value(), ":start r", a.round.value(), " node", a.group_rank.value(), "/",
                        a.group_world_size, " rank", a.first_rank.value(), "/", a.world_size, " n",
                        a.restart_count, " ", a.master_addr, ":", a.master_port);
  }
  if (const auto* e = std::get_if<StopWorkers>(&effect))
    return absl::StrCat(
        e->node.value(), ":stop r", e->round.value(), e->no_round_follows ? " for good" : "",
        e->hung.empty()
            ? ""
            : absl::StrCat(" kill ", absl::StrJoin(e->hung, ",", [](std::string* out, LocalRank r) {
                             absl::StrAppend(out, r.value());
                           })));
  if (const auto* e = std::get_if<TakeSnapshot>(&effect))
    return absl::StrCat(e->node.value(), ":snapshot r", e->round.value(), e->stop_within ? " and stop" : "",
                        e->left ? " and leave" : "");
  if (const auto* e = std::get_if<TellReport>(&effect))
    return absl::StrCat(e->node.value(), ":report r", e->report->round.value());
  if (const auto* e = std::get_if<Dismiss>(&effect))
    return absl::StrCat(e->node.value(), ":dismiss ", ToString(e->reason));
  if (const auto* e = std::get_if<Refuse>(&effect)) {
    return absl::StrCat(e->node.value(), ":refuse ", absl::StatusCodeToString(e->status.code()));
  }
  return "";
}

class RoundMachineTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  void Use(JobRules policy) { machine_.emplace(policy); }

  // Also checks that charter_version() increases with each change of the charter.
  Words Step(const RoundEvent& event) {
    const Charter before = machine_->charter();
    const int64_t version = machine_->charter_version();
    last_ = machine_->Step(event, now_);
    Charter after = machine_->charter();
    after.furthest = before.furthest;
    if (after != before) {
      EXPECT_GT(machine_->charter_version(), version);
    }
    Words words;
    for (const RoundEffect& e : last_) {
      if (std::string w = Word(e); !w.empty()) words.push_back(w);
    }
    return words;
  }
  Words Join(const std::string& id, int nproc = 1) {
    return Step(NodeJoined{
        {.id = NodeId(id), .host = "host-" + id, .addr = "addr-" + id, .store_port = 100, .nproc = nproc}});
  }
  Words JoinAs(const std::string& id, const std::string& host, int rank) {
    return Step(NodeJoined{
        {.id = NodeId(id), .host = host, .addr = host, .store_port = 100, .requested_rank = rank}});
  }
  Words Heard(const std::string& id) { return Step(NodeHeard{NodeId(id)}); }
  Words Failed(const std::string& id, int round,
               Failure failure = {.exit = Exited{1}, .cause = "rank 0 exit 1"}) {
    return Step(WorkersFailed{NodeId(id), Round(round), std::move(failure)});
  }
  Words Succeeded(const std::string& id, int round, bool finished = false) {
    return Step(WorkersSucceeded{NodeId(id), Round(round), finished});
  }
  Words Ready(const std::string& id, int round, int port, std::vector<Failure> failures = {}) {
    return Step(NodeReady{NodeId(id), Round(round), port, std::move(failures)});
  }
  Words Reports(const std::string& id, int round, int64_t step) {
    return Step(NodeHeard{NodeId(id), Progress{.round = Round(round), .step = step, .phase = "training"}});
  }
  Words Snapshot(const std::string& id, int round, int64_t step) {
    return Step(SnapshotTaken{NodeId(id), Round(round), step});
  }
  Words DrainNode(const std::string& id) { return Step(DrainRequested{NodeId(id), "maintenance"}); }
  Words GiveNotice(const std::string& id, Duration left = seconds(60), std::optional<Duration> back_in = {}) {
    return Step(NoticeGiven{NodeId(id), left, back_in, "SIGUSR1"});
  }
  Words Lost(const std::string& id) { return Step(NodeLost{NodeId(id), "connection reset"}); }
  Words Gone(const std::string& id) { return Step(NodeGone{NodeId(id)}); }
  Words Leaving(const std::string& id) { return Step(NodeLeaving{NodeId(id), "its agent received SIGTERM"}); }
  Words Left(const std::string& id) { return Step(NodeLeft{NodeId(id), "its agent received SIGTERM"}); }
  // The connection to the node is lost, then its agent and workers are reported to have exited.
  Words Killed(const std::string& id) {
    Words words = Lost(id);
    RoundEffects lost = last_;
    for (std::string& w : Gone(id)) words.push_back(std::move(w));
    last_.insert(last_.begin(), lost.begin(), lost.end());
    return words;
  }
  Words CloseJob() { return Step(CloseRequested{Dismissal::kStopped, StopWanted{"enough"}}); }
  // Advances time by `d` and delivers the ticks that become due. No node sends a message in that time.
  Words Wait(Duration d) {
    Words all;
    const TimePoint end = now_ + d;
    while (auto due = machine_->NextDeadline()) {
      if (*due > end) break;
      now_ = std::max(now_, *due);
      for (std::string& w : Step(Tick{})) all.push_back(std::move(w));
    }
    now_ = end;
    return all;
  }
  // Like Wait, but each node in `ids` sends a heartbeat every second.
  Words WaitAlive(Duration d, const std::vector<std::string>& ids) {
    Words all;
    for (Duration t{}; t < d; t += seconds(1)) {
      for (std::string& w : Wait(seconds(1))) all.push_back(std::move(w));
      for (const std::string& id : ids) {
        for (std::string& w : Heard(id)) all.push_back(std::move(w));
      }
    }
    return all;
  }
  // Returns the text of the dismissal of `id` in the last step.
  std::string DismissalText(const std::string& id) const {
    for (const RoundEffect& e : last_) {
      if (const auto* dismiss = std::get_if<Dismiss>(&e); dismiss != nullptr && dismiss->node.value() == id)
        return ToText(dismiss->why);
    }
    return "";
  }
  const JobReport* Report() const {
    for (const RoundEffect& e : last_) {
      if (const auto* tell = std::get_if<TellReport>(&e)) return tell->report.get();
    }
    return nullptr;
  }
  std::string StopReason() const {
    for (const RoundEffect& e : last_) {
      if (const auto* stop = std::get_if<StopWorkers>(&e)) return ToText(stop->reason);
    }
    return "";
  }
  std::string WaitingNotice() const {
    for (const RoundEffect& e : last_) {
      if (const auto* t = std::get_if<TellWaiting>(&e)) return ToText(*t->what);
    }
    return "";
  }

  std::optional<RoundMachine> machine_{kTwoToThree};
  TimePoint now_{seconds(1000)};
  RoundEffects last_;
};

}  // namespace ddprun
