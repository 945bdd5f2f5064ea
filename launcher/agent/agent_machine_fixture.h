// A fixture for tests of AgentMachine: steps it, and writes its effects as short texts.
#pragma once

#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_machine.h"

namespace ddprun {

// Returns "<label> <rank> <rank>"; empty if there are no ranks.
inline std::string Ranks(const std::string& label, const std::set<LocalRank>& ranks) {
  std::string text = ranks.empty() ? "" : label;
  for (const LocalRank rank : ranks) absl::StrAppend(&text, " ", rank.value());
  return text;
}

// Returns a short text for `effect`; an empty text for Tell.
inline std::string Word(const AgentEffect& effect) {
  struct Visitor {
    std::string operator()(const StartWorkers& e) {
      return absl::StrCat("start r", e.assignment.round.value(), Ranks(" keep", e.keep));
    }
    std::string operator()(const SignalWorkers& e) {
      return absl::StrCat(SignalName(e.signo), Ranks(" except", e.spare));
    }
    std::string operator()(const KillWorkers& e) { return absl::StrCat("kill", Ranks(" except", e.spare)); }
    std::string operator()(const TellSurvivors& e) {
      return absl::StrCat("tell", Ranks("", e.who), " r", e.round.value(), e.round_over ? " is over" : "",
                          e.no_round_follows ? ", the last" : "");
    }
    std::string operator()(const AskForSnapshot& e) {
      return absl::StrCat(
          "ask for snapshot r", e.round.value(),
          e.stop ? absl::StrCat(", stop at ", e.stop->by.time_since_epoch() / milliseconds(1)) : "");
    }
    std::string operator()(const SendWorkersFailed& e) {
      return absl::StrCat(e.parked ? "parked r" : "failed r", e.round.value());
    }
    std::string operator()(const SendWorkersSucceeded& e) {
      return absl::StrCat("succeeded r", e.round.value(), e.by_signal ? " by signal" : "");
    }
    std::string operator()(const SendReady& e) { return absl::StrCat("ready r", e.round.value()); }
    std::string operator()(const SendSnapshotTaken& e) {
      return absl::StrCat("snapshot r", e.round.value(), " step ", e.step);
    }
    std::string operator()(const SendPreempted& e) { return absl::StrCat("preempted ", ToMillis(e.left)); }
    std::string operator()(const Rejoin& e) { return absl::StrCat("rejoin ", ToMillis(e.limit)); }
    std::string operator()(const SendLeave& e) { return e.workers_gone ? "left" : "leaving"; }
    std::string operator()(const ReportFailures&) { return "report"; }
    std::string operator()(const Tell&) { return ""; }
    std::string operator()(const Finish& e) { return absl::StrCat("exit ", e.exit_code); }
  };
  return std::visit(Visitor(), effect);
}

class AgentMachineTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  Words Step(const AgentEvent& event) {
    last_ = machine_.Step(event, now_);
    Words words;
    for (const AgentEffect& e : last_) {
      if (std::string w = Word(e); !w.empty()) words.push_back(w);
    }
    return words;
  }
  Words Start(int round) {
    return Step(RoundStarted{{.round = Round(round), .first_rank = Rank(4), .world_size = 6}, "all joined"});
  }
  Words Stop(int round) { return Step(RoundStopped{Round(round), "a peer failed"}); }
  Words Ended(int local_rank, ExitInfo exit) { return Step(WorkerEnded{LocalRank(local_rank), exit}); }
  Words Gone() { return Step(WorkersGone{}); }
  Words Signal(int signo) { return Step(SignalReceived{signo}); }
  Words Notice(Duration left) { return Step(NoticeReceived{left, "received SIGUSR1"}); }

  Words Dismiss(Dismissal reason) { return Step(Dismissed{reason, "because"}); }
  Words Lose() { return Step(CoordinatorLost{"connection reset"}); }
  // Returns all lines that the last step logged.
  std::string Said() const {
    std::string said;
    for (const AgentEffect& e : last_) {
      if (const auto* tell = std::get_if<Tell>(&e)) said += tell->text + "\n";
    }
    return said;
  }
  EndReason End() const { return std::get<Finish>(last_.back()).reason; }

  AgentMachine machine_{{.nproc = 2,
                         .grace = seconds(30),
                         .lease = seconds(5),
                         .exit_codes = ExitCodes::kScheduler,
                         .notice_signals = {SIGUSR1}}};
  TimePoint now_{seconds(1000)};
  AgentEffects last_;
};

}  // namespace ddprun
