#include "tests/sim/world/sim_agent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/value_codec.h"
#include "tests/sim/world/message_text.h"
#include "tests/sim/world/sim_coordinator.h"

namespace ddprun::sim {
namespace {

// Upper bound on the time that an agent takes to flush output and write its error file before it exits.
constexpr Duration kLastOutput = milliseconds(50);
// Time that an agent has to kill its workers and exit when it continues after the end of a notice, and that its warden has
// if the agent was killed.
constexpr Duration kWakeUp = milliseconds(100);

std::string TokenOf(const std::string& node) { return absl::StrCat("token of ", node); }

LaunchConfig ConfigOf(const Settings& s, int nproc, std::vector<std::string> expected_hosts) {
  LaunchConfig config;
  config.run_id = "sim";
  config.num_local_workers = nproc;
  config.rules = s.rules;
  config.min_nodes = s.rules.min_nodes;
  config.max_nodes = s.rules.max_nodes;
  config.shutdown_timeout = s.grace;
  config.expected_hosts = std::move(expected_hosts);
  config.admission = s.rules.admission;
  config.rdzv.lease = s.rules.lease;
  config.rdzv.join_timeout = s.rules.join_timeout;
  config.preempt_signals = {{.signo = SIGUSR1, .left = seconds(60)}};
  return config;
}

}  // namespace

SimAgent::SimAgent(Place place)
    : place_(std::move(place)),
      trace_(place_.job->trace),
      config_(ConfigOf(*place_.job->settings, place_.nproc, place_.expected_hosts)),
      random_(place_.job->settings->seed, absl::StrCat("agent of ", place_.host->name())),
      evidence_random_(place_.job->settings->seed, absl::StrCat("evidence of ", place_.host->name())),
      driver_({.config = &config_,
               .world = this,
               .timer = std::make_unique<SimTimer>(
                   place_.host, trace_, [this](std::function<void()> what) { InAgent(std::move(what)); }),
               .node = {.host = place_.host->name(),
                        .address = place_.host->addr(),
                        .first_last_call = place_.job->settings->rules.first_last_call,
                        .last_call = place_.job->settings->rules.last_call,
                        .stop_timeout = place_.job->settings->drain_timeout,
                        // Only the choice of voters needs it.
                        .coordinator_port =
                            place_.job->settings->voters ? place_.registered->coordinator().port() : 0},
               .leased = place_.local == nullptr,
               .seek_limit = place_.registered != nullptr ? config_.rdzv.join_timeout : Duration::zero()}),
      warden_(place_.job, place_.host, place_.habits,
              Random(place_.job->settings->seed, absl::StrCat("warden of ", place_.host->name())),
              SimWarden::Outside{.ended =
                                     [this](LocalRank rank, ExitInfo exit, bool consequence) {
                                       InAgent([this, rank, exit, consequence] {
                                         OnWorkerEnded(rank, exit, consequence);
                                       });
                                     },
                                 .report =
                                     [this](Round round, int64_t step, std::optional<int64_t> snapshot) {
                                       InAgent([this, round, step, snapshot] {
                                         if (round != assignment_.round) return;
                                         step_ = step;
                                         Reported(round, step);
                                         if (snapshot) driver_.Step(SnapshotReported{round, *snapshot});
                                       });
                                     },
                                 .asks =
                                     [this](Round round, LocalRank rank) {
                                       InAgent([this, round, rank] {
                                         if (round == assignment_.round) driver_.Step(WorkerSurvives{rank});
                                       });
                                     },
                                 .parked =
                                     [this](Round round, LocalRank rank, const std::string& why) {
                                       InAgent([this, round, rank, why] { OnParked(round, rank, why); });
                                     },
                                 .fenced =
                                     [this] {
                                       InAgent([this] {
                                         fenced_ = true;
                                         driver_.Step(Fenced{});
                                       });
                                     },
                                 .all_dead = [this] { InAgent([this] { driver_.Step(WorkersGone{}); }); }}) {}

void SimAgent::InAgent(std::function<void()> what) {
  if (ended()) return;
  if (frozen_) {
    held_.push_back(std::move(what));
  } else {
    what();
  }
}

void SimAgent::Start() {
  const Duration limit = place_.registered != nullptr ? config_.rdzv.read_timeout : config_.rdzv.join_timeout;
  Find(limit, /*once=*/false, [this](SearchResult result) {
    if (ended()) return;
    if (const auto* over = std::get_if<Dismissed>(&result)) return OnFinish({EndReasonOf(over->reason), 1});
    if (auto* link = std::get_if<std::unique_ptr<CoordinatorLink>>(&result))
      return driver_.Join(std::move(*link));
    Trace(absl::StrCat(place_.host->name(), " found no coordinator"));
    OnFinish({EndReason::kJoinTimeout, 1});
  });
}

std::unique_ptr<SimLink> SimAgent::MakeLink(SimCoordinator* local, HostId host, int port) {
  return std::make_unique<SimLink>(
      SimLink::Place{.host = place_.host,
                     .tcp = place_.job->tcp,
                     .trace = trace_,
                     .coordinator_host = host,
                     .port = port,
                     .local = local,
                     .in_agent = [this](std::function<void()> what) { InAgent(std::move(what)); },
                     .observe =
                         [this](const proto::CoordinatorMessage& m) {
                           if (place_.registered != nullptr) place_.registered->Received(m);
                           Check(m);
                         },
                     .observe_sent = [this](const proto::AgentMessage& m) { Sent(m); }});
}

void SimAgent::Find(Duration limit, bool once, std::function<void(SearchResult)> done) {
  if (place_.registered != nullptr) {
    return place_.registered->Find(
        limit, /*first=*/!once,
        [this](SimCoordinator* local, HostId host, int port) { return MakeLink(local, host, port); },
        std::move(done));
  }
  found_ = MakeLink(place_.local, place_.coordinator_host, SimLink::kPort);
  found_->Find(limit, once, [this, done = std::move(done)](const absl::Status& status) {
    if (!status.ok()) return done(status);
    done(std::move(found_));
  });
}

NodeIdentity SimAgent::NewIdentity() {
  if (!id_.empty() && notice_end_) Broken(absl::StrCat(id_, " joins again although it is to go away"));
  id_ = place_.new_node_id();
  killed_parked_ = false;  // the workers of a node that is cut off do not survive
  Trace(absl::StrCat(place_.host->name(), " joins as ", id_));
  return {id_, TokenOf(id_)};
}

void SimAgent::Sent(const proto::AgentMessage& message) {
  told_of_notice_ = told_of_notice_ || message.has_preempted();
  if (message.has_leave()) decided_ = true;
  if (!trace_->has_details()) return;
  const std::string text = MessageText(message);
  if (!text.empty()) Detail(absl::StrCat(id_, " -> coordinator: ", text));
}

void SimAgent::Check(const proto::CoordinatorMessage& m) {
  // A Start may cross the end of this node's part of the job.
  if (m.has_start() && !decided_ && warden_.unparked() > 0) {
    Broken(absl::StrCat(id_, " got Start before its previous round was over"));
  }
  if (m.has_take_snapshot() && m.take_snapshot().has_left_ms()) {
    told_of_notice_ = true;
    NoteNotice(milliseconds(m.take_snapshot().left_ms()));
  }
  if (!m.has_dismiss()) return;
  const Dismissal reason = DecodeDismissal(m.dismiss().reason());
  evicted_ = evicted_ || reason == Dismissal::kEvicted;
  if (EndsTheJob(reason) || (IsFinal(reason) && driver_.machine().alive() > 0))
    job_over_until_ = place_.host->now() + place_.job->settings->grace;
  if (reason == Dismissal::kEvicted || reason == Dismissal::kMoved || std::exchange(decided_, true)) return;
  dismissed_ = reason;
}

void SimAgent::OnParked(Round round, LocalRank rank, const std::string& why) {
  if (round == assignment_.round) parked_.insert(rank);
  driver_.Step(WorkerParked{rank, round, absl::StrCat("Connection reset by peer: ", why)});
}

void SimAgent::OnWorkerEnded(LocalRank rank, const ExitInfo& exit, bool consequence) {
  parked_.erase(rank);
  if (!Succeeded(exit)) {
    const size_t i = failures_.Add(
        {.local_rank = rank,
         .pid = 1 + rank.value(),
         .exit = exit,
         .failed_at = place_.host->now(),
         .uptime = place_.host->now() - started_at_,
         .step = step_},
        {.progress = step_ ? absl::StrCat("after step ", *step_) : "", .last_signal = last_signal_sent_});
    // A worker that exits by itself has written its error first; a worker killed by a signal has not.
    if (std::holds_alternative<Exited>(exit)) {
      failures_.AddError(i,
                         {.text = consequence ? "RuntimeError: Connection reset by peer"
                                              : "RuntimeError: the loss is not a number",
                          .json = "",
                          .plain = true},
                         "error.json");
    }
  }
  driver_.Step(WorkerEnded{rank, exit});
}

void SimAgent::Signal(int signo) {
  InAgent([this, signo] {
    decided_ = true;
    ++signals_;
    driver_.Step(SignalReceived{signo});
  });
}

void SimAgent::GiveNotice(Duration left) {
  // The signal may reach the workers before the agent.
  const Duration later = random_.Between(Duration(0), milliseconds(60));
  if (random_.Chance(0.5)) warden_.Stop(/*by_signal=*/true);
  place_.host->After(later, [this, left] {
    InAgent([this, left] {
      NoteNotice(left);
      driver_.Step(NoticeReceived{left, "received SIGUSR1"});
    });
  });
}

void SimAgent::NoteNotice(Duration left) {
  const TimePoint end = place_.host->now() + left;
  if (notice_end_ && *notice_end_ <= end) return;
  notice_end_ = end;
  place_.host->At(end, [this] { CheckNotice(); });
}

void SimAgent::CheckNotice() {
  if ((ended() && warden_.alive() == 0) || frozen_) return;
  if (place_.host->sim_now() < std::max(woken_at_, place_.host->resumed_at()) + kWakeUp) {
    return place_.host->After(kWakeUp, [this] { CheckNotice(); });
  }
  Broken(absl::StrCat(id_, warden_.alive() > 0 ? " has workers" : " has not exited",
                      " at the end of its notice"));
}

void SimAgent::Kill() {
  if (ended()) return;
  killed_ = true;
  woken_at_ = place_.host->sim_now();
  warden_.LoseAgent([this] { ReportGone(); });
  if (found_ != nullptr) found_->Close();
  if (driver_.link() != nullptr) driver_.link()->Close();
}

void SimAgent::ReportGone() {
  if (id_.empty() || is_local()) return;
  HostId to = place_.coordinator_host;
  int port = SimCoordinator::kGonePort;
  if (place_.registered != nullptr) {
    if (!place_.registered->found()) return;
    to = place_.registered->found()->host;
    port = place_.registered->found()->gone_port();
  }
  Detail(absl::StrCat("warden of ", place_.host->name(), " -> coordinator: ", id_,
                      " and its workers have exited"));
  auto socket = std::make_shared<SimSocket>();
  *socket =
      place_.job->tcp->Connect(place_.host->id(), to, port,
                               {.on_open =
                                    [this, socket] {
                                      place_.job->tcp->Send(*socket, absl::StrCat(id_, " ", TokenOf(id_)));
                                      place_.job->tcp->Shutdown(*socket);
                                    },
                                .on_message = [](const std::string&) {},
                                .on_end = [](StreamEnd) {}});
}

void SimAgent::KillWarden() {
  if (ended()) return;
  warden_.Vanish();
  InAgent([this] {
    decided_ = true;
    // An agent that was stopped may have asked for a start before it notices the end of its warden.
    const bool has_workers = driver_.machine().alive() > 0;
    driver_.Step(AgentBroken{absl::InternalError("the warden was killed")});
    for (int i = 0; i < (has_workers ? place_.nproc : 0); ++i) {
      driver_.Step(WorkerEnded{LocalRank(i), Signaled{SIGKILL, false}});
    }
    driver_.Step(WorkersGone{});
  });
}

bool SimAgent::ResetLink() {
  auto* const link = static_cast<SimLink*>(driver_.link());
  return link != nullptr && link->Reset();
}

void SimAgent::FailWorker(ExitInfo exit) {
  if (warden_.workers() != nullptr) warden_.workers()->Fail(exit);
}

bool SimAgent::FailParked() { return warden_.workers() != nullptr && warden_.workers()->FailParked(); }

void SimAgent::Vanish() {
  killed_ = true;
  warden_.Vanish();
  if (found_ != nullptr) found_->Close();
  if (driver_.link() != nullptr) driver_.link()->Close();
}

void SimAgent::Thaw() {
  frozen_ = false;
  woken_at_ = place_.host->sim_now();
  if (notice_end_ && place_.host->now() >= *notice_end_) {
    place_.host->After(kWakeUp, [this] { CheckNotice(); });
  }
  while (!held_.empty() && !frozen_) {
    const std::function<void()> what = std::move(held_.front());
    held_.pop_front();
    InAgent(what);
  }
}

void SimAgent::StartWorkers(const Assignment& assignment, const std::set<LocalRank>& keep) {
  if (warden_.unparked() > 0) Broken(absl::StrCat(id_, " starts workers while others run"));
  if (notice_end_ && !told_of_notice_)
    Broken(absl::StrCat(id_, " starts workers after a notice of which it has not told the coordinator"));
  Trace(absl::StrCat(id_, " starts round ", assignment.round.value(), " as group rank ",
                     assignment.group_rank.value()));
  const bool next = assignment.round.value() == assignment_.round.value() + 1;
  if (!keep.empty() && !next)
    Broken(absl::StrCat(id_, " offers round ", assignment.round.value(), " to workers of round ",
                        assignment_.round.value()));
  if (next && killed_parked_)
    Broken(absl::StrCat(id_, " takes part in the next round, but has killed workers that had parked"));
  parked_.clear();
  killed_parked_ = false;
  assignment_ = assignment;
  started_at_ = place_.host->now();
  step_.reset();
  failures_.BeginRound(assignment);
  last_signal_sent_.reset();
  stop_sent_.reset();
  fenced_ = evicted_ = false;
  warden_.Spawn(assignment, place_.nproc, keep);
}

void SimAgent::SignalWorkers(int signo, const std::set<LocalRank>& spare) {
  last_signal_sent_ = signo;
  stop_sent_ = place_.host->now();
  warden_.SignalAll(signo, spare);
}

// Workers that are told to stop have their whole grace period. The node has less time if the others may go on without it, if it goes away,
// or if the signal is repeated.
void SimAgent::CheckGrace(const std::set<LocalRank>& spare) const {
  if (warden_.workers() == nullptr || !stop_sent_ || fenced_ || evicted_ || notice_end_ || signals_ > 1)
    return;
  const Duration had = place_.host->now() - *stop_sent_;
  if (had + milliseconds(1) < place_.job->settings->grace && warden_.workers()->Running(spare))
    Broken(absl::StrCat(id_, " kills workers ", ToMillis(had), " ms after their signal"));
}

void SimAgent::KillWorkers(const std::set<LocalRank>& spare) {
  CheckGrace(spare);
  last_signal_sent_ = SIGKILL;
  for (const LocalRank rank : parked_) killed_parked_ = killed_parked_ || spare.count(rank) == 0;
  warden_.KillAll(spare);
}

void SimAgent::TellSurvivors(const ddprun::TellSurvivors& what) {
  warden_.Tell(what.who, what.round, what.round_over, what.no_round_follows);
}

void SimAgent::RecordParked(LocalRank local_rank, const std::string& why) {
  failures_.AddParked({.local_rank = local_rank,
                       .pid = 1 + local_rank.value(),
                       .exit = Exited{1},
                       .failed_at = place_.host->now(),
                       .uptime = place_.host->now() - started_at_,
                       .step = step_},
                      absl::UnixEpoch(), why);
}

void SimAgent::FenceWorkers(std::optional<BootTime> deadline) {
  warden_.Fence(deadline ? std::optional(TimePoint(deadline->time_since_epoch())) : std::nullopt);
}

void SimAgent::AskForSnapshot(Round, const std::optional<WorkerStop>& stop) {
  if (stop) return warden_.Stop(/*by_signal=*/false);
  if (warden_.workers() != nullptr) warden_.workers()->WantSnapshot();
}

void SimAgent::FillIn(proto::Heartbeat& heartbeat) const {
  if (warden_.alive() == 0) return;
  heartbeat.set_round(assignment_.round.value());
  if (step_) heartbeat.set_step(*step_);
  heartbeat.set_phase("training");
}

Failure SimAgent::FailureOf(LocalRank local_rank) const {
  Failure failure = failures_.Of(local_rank);
  if (fenced_ || failure.origin == FailureOrigin::kStopped) {
    Broken(absl::StrCat(id_, " reported a failure that it caused itself"));
  }
  return failure;
}

std::vector<Failure> SimAgent::Failures() const {
  if (warden_.unparked() > 0) Broken(absl::StrCat(id_, " sent Ready while its workers run"));
  return failures_.All();
}

void SimAgent::OnFinish(const Finish& finish) {
  if (warden_.alive() > 0) Broken(absl::StrCat(id_, " exited while its workers run"));
  if (dismissed_ && EndReasonOf(*dismissed_) != finish.reason) {
    Broken(absl::StrCat(id_, " was dismissed (", ToString(*dismissed_), ") but exited for another reason"));
  }
  Trace(absl::StrCat(id_, " exits with ", finish.exit_code));
  end_ = finish.reason;
  place_.host->After(random_.Between(Duration(0), kLastOutput),
                     [ended = place_.ended, in_a_hurry = signals_ > 1] { ended(in_a_hurry); });
}

}  // namespace ddprun::sim
