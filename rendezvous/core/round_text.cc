#include "rendezvous/core/round_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/overloaded.h"
#include "base/text.h"
#include "rendezvous/core/failure_aggregator.h"

namespace ddprun {
namespace {

absl::string_view EventOf(const MissedReason& reason) {
  return std::visit(
      Overloaded{[](const Left&) { return "node_left"; }, [](const ConnectionLost&) { return "node_lost"; },
                 [](const AgentGone&) { return "node_gone"; },
                 [](const Replaced&) { return "node_replaced"; },
                 [](const LeaseExpired&) { return "lease_expired"; },
                 [](const JoinTimedOut&) { return "join_timeout"; },
                 [](const StopTimedOut&) { return "stop_timeout"; },
                 [](const PreemptedForNow&) { return "node_preempted"; },
                 [](const TooFewLeft&) { return "too_few_left"; },
                 [](const NotYetBack&) { return "node_not_back"; }},
      reason);
}

absl::string_view ForgottenText(note::JobForgotten::Why why) {
  switch (why) {
    case note::JobForgotten::Why::kNoNodes:
      return "it has no nodes";
    case note::JobForgotten::Why::kNoneCameBack:
      return "none of its nodes has come back";
    case note::JobForgotten::Why::kOtherOptions:
      return "its nodes were lost, and it is started with other options";
  }
  return "?";
}

std::string StragglerText(const note::Straggles& n) {
  constexpr size_t kMostNamed = 8;
  const bool many = n.ranks.size() > 1;
  std::string ranks;
  for (size_t i = 0; i < n.ranks.size() && i < kMostNamed; ++i) {
    const bool last = i > 0 && i + 1 == n.ranks.size();
    absl::StrAppend(&ranks, i == 0 ? "" : last ? " and " : ", ", n.ranks[i].value());
  }
  if (n.ranks.size() > kMostNamed) absl::StrAppend(&ranks, " and ", n.ranks.size() - kMostNamed, " more");
  return absl::StrCat(
      many ? "ranks " : "rank ", ranks, " on ", n.host,
      many ? " are slower than the others: they need up to " : " is slower than the others: it needs ",
      InThreeDigits(n.own), many ? " of their own for each step of " : " of its own for each step of ",
      InThreeDigits(n.step), "; the median of all ranks is ", InThreeDigits(n.median));
}

}  // namespace

std::string ToText(const NodeName& node) {
  return absl::StrCat("node ", node.host, " (", node.id.value(), ")");
}

std::string ToText(const TooFewLeft& too_few) {
  return absl::StrCat(
      "only ", too_few.nodes, " of at least ", Counted(too_few.min_nodes, "node"),
      " are left, and no others can join; start the job again, or lower the minimum of --nnodes");
}

std::string ToText(const NodeMissed& missed) {
  const std::string name = ToText(missed.node);
  return std::visit(
      Overloaded{
          [&](const Left& r) { return absl::StrCat(name, " left: ", r.why); },
          [&](const ConnectionLost& r) { return absl::StrCat(name, " is lost: ", r.why); },
          [&](const AgentGone&) {
            return absl::StrCat(name, ": its agent has gone, and so have all its workers");
          },
          [&](const Replaced& r) {
            return absl::StrCat(name, " was replaced by its new start ", r.by.value());
          },
          [&](const LeaseExpired& r) {
            return absl::StrCat(
                name, " has not been heard from for ", ToMillis(r.lease), " ms: its lease expired",
                r.ago < milliseconds(1) ? "" : absl::StrCat(" ", r.ago / milliseconds(1), " ms ago"));
          },
          [&](const JoinTimedOut& r) {
            return absl::StrCat("node ", missed.node.id.value(), " waited ", InSeconds(r.waited));
          },
          [&](const StopTimedOut& r) {
            return absl::StrCat(name, " did not stop its workers of round ", r.round.value(), " in time");
          },
          [&](const PreemptedForNow& r) {
            return absl::StrCat(name, " was pre-empted, and returns in ", InSeconds(r.back_in));
          },
          [&](const TooFewLeft& r) { return absl::StrCat(name, " waits in vain: ", ToText(r)); },
          [&](const NotYetBack&) { return absl::StrCat(name, " has not joined the new coordinator"); }},
      missed.why);
}

std::string ToText(const NodeStopping& s) { return absl::StrCat(ToText(s.node), " is leaving: ", s.why); }

std::string ToText(const TakenOut& t) { return absl::StrCat(ToText(t.node), " is to be taken out: ", t.why); }

std::string ToText(const CoordinatorMoves& m) {
  return absl::StrCat("the coordinator moves to another host: ", m.why);
}

std::string ToText(const NodePreempted& p) { return absl::StrCat(ToText(p.node), " is pre-empted: ", p.why); }

std::string ToText(const CloseReason& reason) {
  return std::visit(
      Overloaded{[](const StopWanted& r) { return r.why; },
                 [](const HostLeaving& r) {
                   return absl::StrCat("the agent that hosts the coordinator is leaving: ", r.why);
                 },
                 [](const HostPreempted& r) {
                   return absl::StrCat(ToText(r.why),
                                       "; it hosts the coordinator, so the job ends. Start it again: it "
                                       "continues from its last snapshot");
                 }},
      reason);
}

std::string ToText(const InterruptReason& reason) {
  return std::visit(Overloaded{[](const TakenOut& r) { return ToText(r); },
                               [](const NodePreempted& r) { return ToText(r); },
                               [](const NewcomersWait& r) {
                                 return absl::StrCat(Counted(r.nodes, "node"), " joined the running job");
                               }},
                    reason);
}

std::string ToText(const EndOfRound& reason) {
  return std::visit(
      Overloaded{[](const FailureReported& r) { return r.cause; },
                 [](const SnapshotCame& r) {
                   return absl::StrCat(ToText(r.why), "; a snapshot of step ", r.step, " is there");
                 },
                 [](const NoSnapshotCame& r) {
                   return absl::StrCat(ToText(r.why), "; no snapshot came within ", InSeconds(r.timeout));
                 },
                 [](const StoppedAfterNotice& r) {
                   return absl::StrCat(ToText(r.why), "; the workers have stopped");
                 },
                 [](const auto& r) { return ToText(r); }},
      reason);
}

std::string ToText(const SealReason& reason) {
  return std::visit(
      Overloaded{
          [](const AllJoined& r) { return absl::StrCat("all ", Counted(r.nodes, "node"), " joined"); },
          [](const LastCallOver& r) {
            return absl::StrCat(r.nodes, " of at most ", Counted(r.max_nodes, "node"),
                                " joined and the last call is over");
          },
          [](const PauseOver&) { return std::string("the pause after repeated losses of nodes is over"); },
          [](const MembersStopped&) { return std::string("all members stopped their workers"); },
          [](const MembersCameBack& r) {
            return absl::StrCat(Counted(r.nodes, "node"), " came back under a new coordinator");
          }},
      reason);
}

std::string ToText(const CostReason& reason) {
  return std::visit(
      Overloaded{
          [](const NothingFailed&) {
            return std::string("no restart is spent: no failure of a worker ended the round");
          },
          [](const FollowedFromLoss&) {
            return std::string(
                "no restart is spent: the workers failed "
                "because a node was lost");
          },
          [](const FailedAfterNotice&) {
            return std::string("no restart is spent: a node of the round had notice that it is pre-empted");
          },
          [](const WorkerStuck&) {
            return std::string(
                "a worker that is stuck holds its device: "
                "another start would end the same way");
          },
          [](const NoRestartAllowed&) { return std::string("no restart is allowed (--max-restarts=0)"); },
          [](const RestartsUsedUp& r) { return absl::StrCat("all ", r.max, " restarts are used up"); },
          [](const FailedTooEarly& r) {
            return absl::StrCat("it failed after ", InSeconds(r.uptime),
                                ", before its first step and in less than ", InSeconds(r.min_uptime),
                                " (--min-uptime): another start would end the same way");
          },
          [](const NoProgress& r) {
            return absl::StrCat(r.restarts, " restarts in a row have not brought the job beyond step ",
                                r.step, " (--max-restarts-without-progress=", r.limit, ")");
          },
          [](const RestartGranted& r) { return absl::StrCat("restart ", r.restart, " of ", r.max); }},
      reason);
}

std::string ToText(const EndOfJob& end) {
  return std::visit(
      Overloaded{[](const AllSucceeded&) { return std::string(); },
                 [](const FailedForGood& r) { return absl::StrCat(r.cause, "; ", ToText(r.why)); },
                 [](const LossesInARow& r) {
                   return absl::StrCat("nodes were lost in ", r.rounds,
                                       " rounds in a row that brought the job no step forward: ",
                                       r.last ? ToText(*r.last) : "the coordinator was lost");
                 },
                 [](const CloseReason& r) { return ToText(r); }, [](const EndedBefore& r) { return r.why; }},
      end);
}

std::string ToText(const DismissReason& reason) {
  return std::visit(
      Overloaded{
          [](const JobIsClosed& r) {
            const std::string why = ToText(r.end);
            return absl::StrCat("the job is closed: ", why.empty() ? "it has succeeded" : why);
          },
          [](const JobIsClosing& r) { return absl::StrCat("the job is being closed: ", ToText(r.why)); },
          [](const RankTooHigh& r) {
            return absl::StrCat("node rank ", r.rank, " of ", r.host, " is not below the job's ",
                                Counted(r.max_nodes, "node"));
          },
          [](const RankTaken& r) {
            return absl::StrCat("node rank ", r.rank, " of ", r.host, " is already taken by ", ToText(r.by));
          },
          [](const TooFewJoined& r) {
            return absl::StrCat("only ", r.nodes, " of at least ", Counted(r.min_nodes, "node"),
                                " joined within ", InSeconds(r.within),
                                "; start the agents of the other nodes with "
                                "the same --rdzv-endpoint and "
                                "--rdzv-id, or raise --rdzv-conf=join_timeout");
          },
          [](const NoJoinCame& r) {
            return absl::StrCat(r.address, " connected, but sent no join within ", ToMillis(r.within), " ms");
          },
          [](const NotLed& r) { return absl::StrCat("this process does not lead job ", r.run_id); },
          [](const Unfit& r) { return r.why; }, [](const auto& r) { return ToText(r); }},
      reason);
}

std::string ToText(const Waiting& waiting) {
  return std::visit(Overloaded{[](const WaitsForNodes& w) {
                                 return GatheringText(w.rules, w.joined, w.absent, w.since, w.last_call_end,
                                                      w.now);
                               },
                               [](const WaitsAsSpare& w) { return SpareText(w.rules, w.running, w.waiting); },
                               [](const WaitsForSnapshot& w) {
                                 return absl::StrCat(
                                     "the job is asked for a snapshot and goes on with more "
                                     "nodes from there, in ",
                                     InSeconds(w.left), " at the latest");
                               },
                               [](const WaitsForDrain& w) {
                                 return absl::StrCat("waiting for ", Counted(w.nodes, "node"),
                                                     " to stop the workers of round ", w.round.value());
                               },
                               [](const WaitsForNothing&) { return std::string("the job is closed"); }},
                    waiting);
}

NoteText ToText(const Note& note) {
  using T = NoteText;
  return std::visit(
      Overloaded{
          [](const note::NodeJoined& n) {
            return T{"node_joined", absl::StrCat(ToText(n.node), " with ", Counted(n.nproc, "worker"))};
          },
          [](const note::WorkersFailed& n) {
            return T{"workers_failed", n.cause};
          },
          [](const note::SnapshotTaken& n) {
            return T{"snapshot_taken", absl::StrCat("of step ", n.step, " on ", ToText(n.node))};
          },
          [](const note::NodeLeaving& n) {
            return T{"node_leaving", ToText(n.why)};
          },
          [](const NodeMissed& n) {
            return T{EventOf(n.why), ToText(n)};
          },
          [](const note::DrainRequested& n) {
            return T{"drain_requested", ToText(n.why)};
          },
          [](const note::NodeDrained& n) {
            return T{"node_drained", ToText(n.why)};
          },
          [](const note::Notice& n) {
            return T{"notice",
                     absl::StrCat(ToText(n.why), "; it goes away in ", InSeconds(n.left),
                                  n.back_in ? absl::StrCat(", and returns in ", InSeconds(*n.back_in)) : "")};
          },
          [](const note::NodePreempted& n) {
            return T{"node_preempted", ToText(n.why)};
          },
          [](const note::JobClosing& n) {
            return T{"job_closing", ToText(n.why)};
          },
          [](const note::StandsStill& n) {
            const std::string finding = n.finding.empty() ? "" : absl::StrCat(": ", n.finding);
            return T{n.ends ? absl::string_view("round_hung") : kRoundStandsStill,
                     absl::StrCat("round ", n.round.value(), " has made no progress for ", InSeconds(n.idle),
                                  finding)};
          },
          [](const note::MovesAgain& n) {
            return T{kRoundMovesAgain, absl::StrCat("round ", n.round.value(), " makes progress again")};
          },
          [](const note::Straggles& n) {
            return T{kStraggler, StragglerText(n)};
          },
          [](const note::HostExcluded& n) {
            return T{"host_excluded",
                     absl::StrCat(n.host, " is left out of later rounds, unless it is needed: ",
                                  Counted(n.failures, "time"), " it was the first to fail or was lost")};
          },
          [](const note::SnapshotAsked& n) {
            return T{"snapshot_asked", absl::StrCat("round ", n.round.value(), ": ", ToText(n.why))};
          },
          [](const note::RoundSealed& n) {
            return T{"round_sealed",
                     absl::StrCat("round ", n.round.value(), " with ", Counted(n.nodes, "node"), ", ",
                                  Counted(n.workers, "worker"), ": ", ToText(n.why))};
          },
          [](const note::RoundEnded& n) {
            return T{"round_ended", absl::StrCat("round ", n.round.value(), ": ", ToText(n.why))};
          },
          [](const note::RoundReported& n) {
            return T{"round_report", Summary(*n.report)};
          },
          [](const note::Paused& n) {
            return T{"pause", absl::StrCat("nodes were lost in ", n.rounds,
                                           " rounds in a row without progress: "
                                           "the next one begins in ",
                                           InSeconds(n.pause))};
          },
          [](const note::WaitingForNodes& n) {
            return T{"waiting_for_nodes", ToText(n.what)};
          },
          [](const note::Resumed& n) {
            const std::string last = n.round ? absl::StrCat("round ", n.round->value()) : "no round";
            return T{"job_resumed", absl::StrCat("a new coordinator continues after ", last,
                                                 "; restarts so far: ", n.restarts, "; waiting for ",
                                                 Counted(n.members, "member"))};
          },
          [](const note::JobClosed& n) {
            const std::string why = ToText(n.end);
            return T{"job_closed", why.empty() ? "all workers succeeded" : why};
          },
          [](const note::HandingOver& n) {
            return T{"handing_over", ToText(n.why)};
          },
          [](const note::HandedOver& n) {
            return T{"handed_over",
                     absl::StrCat(Counted(n.nodes, "node"), " may look for the next coordinator")};
          },
          [](const note::JobDeserted&) {
            return T{"job_deserted", "all its nodes were lost; they may come back"};
          },
          [](const note::JobForgotten& n) {
            return T{"job_forgotten", std::string(ForgottenText(n.why))};
          },
          [](const note::AgentRefused& n) {
            return T{"agent_refused", ToText(n.why)};
          },
          [](const note::BadMessage& n) {
            return T{"bad_message", absl::StrCat("of node ", n.node.value(), ": ", n.why)};
          }},
      note);
}

namespace {

constexpr size_t kMaxNames = 8;

}  // namespace

std::string AbsenceText(const MissedReason& reason) {
  return std::visit(
      Overloaded{[](const Left& r) { return absl::StrCat("it left: ", r.why); },
                 [](const ConnectionLost& r) { return r.why; },
                 [](const AgentGone&) { return std::string("its agent was killed"); },
                 [](const Replaced&) { return std::string("it was started anew"); },
                 [](const LeaseExpired&) { return std::string("its lease expired"); },
                 [](const JoinTimedOut&) { return std::string("it waited too long"); },
                 [](const StopTimedOut&) { return std::string("it did not stop its workers"); },
                 [](const PreemptedForNow& r) {
                   return absl::StrCat("pre-empted; it said that it returns after ", InSeconds(r.back_in));
                 },
                 [](const TooFewLeft& r) { return ToText(r); },
                 [](const NotYetBack&) { return std::string("it has not joined the new coordinator"); }},
      reason);
}

std::string ListOf(const std::vector<AbsentNode>& absent, TimePoint now) {
  std::string text;
  for (size_t i = 0; i < std::min(absent.size(), kMaxNames); ++i) {
    const AbsentNode& node = absent[i];
    absl::StrAppend(&text, i == 0 ? "" : ", ", node.host);
    if (node.since) {
      absl::StrAppend(&text, " (lost ", InSeconds(now - *node.since),
                      " ago: ", node.why ? AbsenceText(*node.why) : "", ")");
    } else {
      absl::StrAppend(&text, " (not heard from)");
    }
  }
  if (absent.size() > kMaxNames) absl::StrAppend(&text, " and ", absent.size() - kMaxNames, " more");
  return text;
}

std::string GatheringText(const JobRules& policy, int joined, const std::vector<AbsentNode>& absent,
                          TimePoint since, std::optional<TimePoint> last_call_end, TimePoint now) {
  std::string text = absl::StrCat(joined, "/", policy.max_nodes, " nodes joined, ");
  const int known = static_cast<int>(absent.size());
  if (joined >= policy.min_nodes) {
    absl::StrAppend(&text, "enough to start; last call for ", policy.max_nodes - joined, " more");
    if (known > 0) absl::StrAppend(&text, ": ", ListOf(absent, now));
    if (last_call_end) {
      const Duration left = std::max(*last_call_end - now, Duration::zero());
      absl::StrAppend(&text, "; the workers start in ", InSeconds(std::chrono::ceil<seconds>(left)),
                      " at the latest (--rdzv-conf=last_call_timeout=SECONDS sets this time; a fixed "
                      "--nnodes=N has none)");
    }
    return text;
  }
  const int needed = policy.min_nodes - joined;
  if (known == 0) {
    absl::StrAppend(&text, "waiting for at least ", needed, " more (not heard from)");
  } else if (known < needed) {
    absl::StrAppend(&text, "waiting for ", ListOf(absent, now), " and at least ", needed - known,
                    " more (not heard from)");
  } else if (known == needed) {
    absl::StrAppend(&text, "waiting for ", ListOf(absent, now));
  } else {
    absl::StrAppend(&text, "waiting for at least ", needed, " of ", ListOf(absent, now));
  }
  if (now - since >= seconds(1)) absl::StrAppend(&text, "; for ", InSeconds(now - since), " so far");
  return text;
}

std::string SpareText(const JobRules& policy, int running, int waiting) {
  const std::string runs = absl::StrCat("the job runs on ", Counted(running, "node"));
  if (running >= policy.max_nodes) {
    return absl::StrCat("the job runs on its maximum of ", Counted(policy.max_nodes, "node"),
                        "; this node is a spare and takes over when one is lost");
  }
  if (policy.scale_up == ScaleUp::kNever) {
    return absl::StrCat(runs, "; this node is a spare (--scale-up=never) and comes in when a round ends");
  }
  if (const int lacking = policy.node_unit - waiting; lacking > 0) {
    return absl::StrCat(runs, ", a multiple of ", policy.node_unit,
                        " (--node-unit); this node is a spare until ", Counted(lacking, "more node"),
                        lacking == 1 ? " joins" : " join");
  }
  if (policy.scale_up == ScaleUp::kAtSnapshot) {
    return absl::StrCat(runs,
                        "; this node joins it at its next snapshot, which is asked for after the last call");
  }
  return absl::StrCat(runs, "; this node joins it at the next round");
}

}  // namespace ddprun
