#include "tests/sim/world/sim_workers.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/sim/world/hang_rules.h"

namespace ddprun::sim {
namespace {

// Timeout of the first connection to the master, and of a collective in jobs without --hang-timeout.
constexpr Duration kCollectiveTimeout = seconds(20);
// With --hang-timeout, which must be the first to act.
constexpr Duration kLongCollectiveTimeout = seconds(900);
constexpr Duration kConnectPause = milliseconds(50);

}  // namespace

SimWorkers::SimWorkers(SimJob* job, SimHost* host, HostHabits* habits, const Assignment& assignment,
                       std::map<LocalRank, SimProcess> processes, std::set<LocalRank> kept, Random random,
                       Outside outside)
    : job_(job),
      host_(host),
      habits_(habits),
      assignment_(assignment),
      random_(std::move(random)),
      outside_(std::move(outside)),
      processes_(std::move(processes)),
      kept_(std::move(kept)),
      may_survive_(kept_) {
  for (const auto& [rank, process] : processes_) alive_.insert(rank);
}

SimWorkers::~SimWorkers() { Vanish(); }

void SimWorkers::After(Duration d, std::function<void()> what) {
  host_->After(d, [this, here = std::weak_ptr<bool>(here_), what = std::move(what)] {
    if (!here.expired() && !broken_) what();
  });
}

void SimWorkers::Start() {
  Detail(
      absl::StrCat("workers of round ", round().value(), " start on ", host_->name(), ": ", alive_.size()));
  const bool all_kept = kept_ == alive_;
  const Duration start = all_kept ? random_.Between(milliseconds(1), milliseconds(5))
                                  : random_.Between(milliseconds(1), milliseconds(200));
  if (job_->settings->survives != 0) {
    for (const LocalRank rank : alive_) {
      if (kept_.count(rank) == 0) After(start / 2, [this, rank] { outside_.asks(rank); });
    }
  }
  if (plain()) return After(start, [this] { StartPlain(); });
  if (is_master()) {
    writer_ = job_->disk->NewWriter();
    seen_ = job_->disk->Holder();
    After(start, [this] { Listen(); });
  } else {
    After(start, [this] { Connect(); });
  }
  Watch();
}

void SimWorkers::StartPlain() {
  const Duration longest = job_->calm ? Duration(seconds(5)) : job_->settings->step_time;
  for (const LocalRank rank : alive_) {
    After(random_.Between(milliseconds(1), longest), [this, rank] { End(rank, Exited{0}); });
  }
}

void SimWorkers::Listen() {
  job_->tcp->Listen(host_->id(), assignment_.master_port, [this](SimSocket socket, HostId) {
    peers_[socket.connection] = {socket};
    return SimTcp::Handlers{
        .on_message = [this, socket](const std::string& message) { OnPeer(socket.connection, message); },
        .on_end = [this](StreamEnd) { Break("a peer has disconnected", true); }};
  });
  MaybeAdvance();
}

void SimWorkers::Connect() {
  to_master_ =
      job_->tcp->Connect(host_->id(), job_->host_of(assignment_.master_addr), assignment_.master_port,
                         {.on_message = [this](const std::string& message) { OnMessage(message); },
                          .on_end =
                              [this](StreamEnd why) {
                                if (why == StreamEnd::kRefused && step_ < 0)
                                  return After(kConnectPause, [this] { Connect(); });
                                Break("rank 0 has disconnected", true);
                              }});
  std::string has = "has";
  for (const auto& [rank, p] : processes_) {
    absl::StrAppend(&has, " ", p.history.previous_round(), " ", p.step, " ", p.value, " ", p.prepared, " ",
                    p.prepared_value);
  }
  job_->tcp->Send(*to_master_, has);
}

void SimWorkers::OnMessage(const std::string& message) {
  if (broken_) return;
  ++said_;
  int64_t step = 0;
  if (absl::SimpleAtoi(message, &step)) {
    Commit(step);
    return broken_ ? void() : Go(step);
  }
  if (message == "end") {
    Commit(step_ + 1);
    return broken_ ? void() : Succeed();
  }
  if (message == "stop") {
    Commit(step_ + 1);
    return broken_ ? void() : Stopped();
  }
  const std::vector<std::string> words = absl::StrSplit(message, ' ');  // "from", step, value, start, actions
  uint64_t value = 0;
  int64_t start = 0;
  DDPRUN_CHECK(words.size() == 5 && absl::SimpleAtoi(words[1], &step) && absl::SimpleAtoi(words[2], &value) &&
                   absl::SimpleAtoi(words[3], &start),
               message);
  Continue(step, value, words[4], start);
  if (!broken_) Go(step);
}

void SimWorkers::OnPeer(uint64_t connection, const std::string& message) {
  ++said_;
  Peer& peer = peers_[connection];
  const std::vector<std::string> words = absl::StrSplit(message, ' ');
  if (words[0] != "has") {
    DDPRUN_CHECK(absl::SimpleAtoi(words[0], &peer.done), message);
    peer.notice = words.size() > 1;
  } else {
    for (size_t i = 1; i + 4 < words.size(); i += 5) {
      int64_t previous = -1;
      SimProcess p;
      DDPRUN_CHECK(absl::SimpleAtoi(words[i], &previous) && absl::SimpleAtoi(words[i + 1], &p.step) &&
                       absl::SimpleAtoi(words[i + 2], &p.value) &&
                       absl::SimpleAtoi(words[i + 3], &p.prepared) &&
                       absl::SimpleAtoi(words[i + 4], &p.prepared_value),
                   message);
      if (previous >= 0) {
        p.history.Recovered(previous);
        p.history.Leave(previous);
      }
      peer.processes.push_back(p);
    }
  }
  MaybeAdvance();
}

void SimWorkers::MaybeAdvance() {
  if (broken_) return;
  int ready = 1;
  for (const auto& [connection, peer] : peers_)
    ready += step_ < 0 ? !peer.processes.empty() : peer.done == step_ + 1;
  if (ready < assignment_.group_world_size || (step_ >= 0 && !step_done_)) return;
  if (step_ < 0) {
    if (!job_->disk->Take(writer_, seen_)) return Break("another writer has taken the directory", false);
    return Decide();
  }
  ++job_->steps_done;
  const int64_t step = step_ + 1;
  Commit(step);
  if (broken_) return;
  const bool last = step >= job_->settings->total_steps;
  stopping_ = !last && MustStop();
  if (last || stopping_ || snapshot_wanted_ || step % job_->settings->snapshot_every == 0) {
    step_ = step;
    step_done_ = false;
    return Write();
  }
  Go(step);
}

void SimWorkers::Decide() {
  std::vector<const SimProcess*> all;
  std::vector<Standing> standings;
  std::vector<int> first;  // by node, in the order of this node and peers_
  const auto add = [&](const SimProcess& p) {
    all.push_back(&p);
    standings.push_back(p.StandingOn(static_cast<int64_t>(first.size())));
  };
  first.push_back(0);
  for (const auto& [rank, p] : processes_) add(p);
  for (const auto& [connection, peer] : peers_) {
    first.push_back(static_cast<int>(all.size()));
    for (const SimProcess& p : peer.processes) add(p);
  }
  first.push_back(static_cast<int>(all.size()));
  const StatusOr<Decision> decision = DecideStep(round().value(), standings);
  if (!decision.ok()) {
    return job_->trace->Broken(job_->clock->now(),
                               absl::StrCat("round ", round().value(),
                                            " cannot continue: ", std::string(decision.status().message())));
  }
  const bool survivors = decision->step >= 0;
  const int64_t step = survivors ? decision->step : job_->disk->NewestStep();
  uint64_t value = job_->state->ValueOfSnapshot(step);
  // Without joiners there is no root; then this is the value that all ranks should have.
  const int root = decision->root >= 0 ? decision->root : 0;
  std::string actions;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool joins =
        std::count(decision->joiners.begin(), decision->joiners.end(), static_cast<int>(i)) > 0;
    const bool applies = decision->actions[i] == StepAction::kApply;
    actions += !survivors || joins ? 'j' : applies ? 'a' : 'd';
    if (survivors && static_cast<int>(i) == root) value = applies ? all[i]->prepared_value : all[i]->value;
  }
  Detail(absl::StrCat("workers of round ", round().value(), " continue from step ", step,
                      survivors ? " with the memory of survivors" : ""));
  const int64_t start = job_->state->Start(round(), step, value, survivors);
  int node = 1;
  for (const auto& [connection, peer] : peers_) {
    job_->tcp->Send(peer.socket, absl::StrCat("from ", step, " ", value, " ", start, " ",
                                              actions.substr(first[node], first[node + 1] - first[node])));
    ++node;
  }
  Continue(step, value, actions.substr(0, first[1]), start);
  if (!broken_) Go(step);
}

void SimWorkers::Continue(int64_t step, uint64_t value, const std::string& actions, int64_t start) {
  start_no_ = start;
  size_t i = 0;
  for (auto& [rank, p] : processes_) {
    const char action = actions.at(i++);
    if (action == 'a') {
      p.Commit();
      ++job_->survival.recovered;
    }
    p.prepared = -1;
    if (action == 'j') {
      p.step = step;
      p.value = value;
    } else {
      ++job_->survival.survived;
    }
    job_->state->Continues(start, p);
    p.history.Recovered(round().value());
  }
  FailAt(HostHabits::Point::kContinued);
}

void SimWorkers::Prepare() {
  for (auto& [rank, p] : processes_) {
    p.prepared = step_ + 1;
    p.prepared_value = NextValue(p.value, p.prepared, round());
  }
  FailAt(HostHabits::Point::kPrepared);
}

void SimWorkers::Commit(int64_t step) {
  if (!parked_.empty()) {
    job_->trace->Broken(job_->clock->now(),
                        absl::StrCat("a worker that has parked on ", host_->name(), " acts in its round"));
  }
  for (auto& [rank, p] : processes_) {
    if (p.prepared != step) continue;
    p.Commit();
    job_->state->Committed(start_no_, p);
  }
  FailAt(HostHabits::Point::kCommitted);
}

void SimWorkers::FailAt(HostHabits::Point point) {
  if (habits_->fail_at != point || alive_.empty() || over_) return;
  habits_->fail_at = HostHabits::Point::kNever;
  job_->fired(FaultKind::kFailAt);
  Fail(Signaled{SIGKILL, false});
}

void SimWorkers::Write() {
  const bool wanted = std::exchange(snapshot_wanted_, false) || stopping_;
  job_->disk->Write(writer_, round(), step_, [this, wanted, step = step_](SimDisk::Outcome outcome) {
    ++said_;
    if (outcome == SimDisk::Outcome::kPublished && !processes_.empty()) {
      job_->state->Published(step, processes_.begin()->second.value);
    }
    if (broken_) return;
    if (outcome == SimDisk::Outcome::kTakenOver)
      return Break("another writer has taken the directory", false);
    if (outcome == SimDisk::Outcome::kPublished) {
      snapshot_step_ = step;
      Detail(absl::StrCat("rank 0 has written a snapshot of step ", step));
    }
    if (outcome == SimDisk::Outcome::kFull && wanted) snapshot_wanted_ = true;
    if (outcome == SimDisk::Outcome::kFull && step >= job_->settings->total_steps) {
      return Break("the last snapshot cannot be written", false);
    }
    if (stopping_ && outcome == SimDisk::Outcome::kPublished) return Stopped();
    Go(step);
  });
}

void SimWorkers::Go(int64_t step) {
  step_ = step;
  step_done_ = false;
  if (waits_since_) waited_ += host_->now() - *std::exchange(waits_since_, std::nullopt);
  job_->hangs->Progress(assignment_, host_->name());
  outside_.report(step, snapshot_step_);
  if (step >= job_->settings->total_steps) {
    if (is_master()) Tell("end");
    return is_master() ? Succeed() : void();
  }
  if (is_master()) Tell(absl::StrCat(step));
  const Duration usual = job_->settings->step_time;
  DoStep(random_.Between(usual / 2, usual + usual / 2));
}

void SimWorkers::Done() {
  if (paused_) return;
  Prepare();
  if (broken_) return;
  step_done_ = true;
  waits_since_ = host_->now();
  if (is_master()) return MaybeAdvance();
  job_->tcp->Send(*to_master_, absl::StrCat(step_ + 1, notice_ ? " notice" : ""));
}

void SimWorkers::Tell(const std::string& message) {
  for (const auto& [connection, peer] : peers_) job_->tcp->Send(peer.socket, message);
}

void SimWorkers::Succeed() {
  over_ = true;
  for (const LocalRank rank : alive_) {
    After(random_.Between(milliseconds(0), milliseconds(100)), [this, rank] { End(rank, Exited{0}); });
  }
}

void SimWorkers::Break(const std::string& why, bool consequence) {
  if (broken_ || over_ || alive_.empty()) return;
  job_->trace->Line(job_->clock->now(),
                    absl::StrCat("workers of ", host_->name(), " cannot continue: ", why));
  broken_ = true;
  job_->disk->Kill(writer_);
  HangUp();
  for (const LocalRank rank : alive_) {
    if (Hangs(rank)) continue;
    host_->After(random_.Between(milliseconds(0), milliseconds(100)),
                 [this, here = std::weak_ptr<bool>(here_), rank, consequence, why] {
                   if (here.expired()) return;
                   if (consequence && may_survive_.count(rank) > 0) return Park(rank, why);
                   End(rank, Exited{1}, consequence);
                 });
  }
}

void SimWorkers::Watch() {
  const bool judged = job_->settings->rules.hang_timeout != HangTimeout::Off() && step_ >= 0;
  After(judged ? kLongCollectiveTimeout : kCollectiveTimeout, [this, said = said_] {
    if (over_) return;
    if (said == said_ && !(is_master() && assignment_.group_world_size == 1)) {
      return Break("no message from another node for too long", true);
    }
    Watch();
  });
}

void SimWorkers::Signal(int signo, const std::set<LocalRank>& spare) {
  // A write in progress may complete, and plain workers may finish their work.
  if (!plain() && !over_) broken_ = true;
  for (const LocalRank rank : alive_) {
    if ((Hangs(rank) && stopped_) || spare.count(rank) > 0 || !signaled_.insert(rank).second) continue;
    Detail(absl::StrCat("local rank ", rank.value(), " on ", host_->name(), " gets ", SignalName(signo)));
    host_->After(random_.Between(Duration(0), job_->settings->save),
                 [this, here = std::weak_ptr<bool>(here_), rank, signo] {
                   if (!here.expired()) End(rank, Signaled{signo, false});
                 });
  }
}

void SimWorkers::Tell(const std::set<LocalRank>& who, bool round_over, bool no_round_follows) {
  for (const LocalRank rank : who) {
    if (alive_.count(rank) == 0) continue;
    if (no_round_follows) {
      may_survive_.erase(rank);
      continue;
    }
    may_survive_.insert(rank);
    if (!round_over || over_) continue;
    broken_ = true;
    job_->disk->Kill(writer_);
    HangUp();
    host_->After(random_.Between(Duration(0), job_->settings->park),
                 [this, here = std::weak_ptr<bool>(here_), rank] {
                   if (!here.expired()) Park(rank, "the round is over");
                 });
  }
}

void SimWorkers::Park(LocalRank rank, const std::string& why) {
  if (habits_->hang) {  // until the fault ends or the worker is killed
    host_->After(milliseconds(200), [this, here = std::weak_ptr<bool>(here_), rank, why] {
      if (!here.expired()) Park(rank, why);
    });
    return;
  }
  if (Hangs(rank) || may_survive_.count(rank) == 0 || alive_.count(rank) == 0 || !parked_.insert(rank).second)
    return;
  ++job_->survival.parked;
  Detail(absl::StrCat("rank ", assignment_.first_rank.value() + rank.value(), " on ", host_->name(),
                      " parks: ", why));
  processes_.at(rank).history.Leave(round().value());
  outside_.parked(rank, why);
}

std::map<LocalRank, SimProcess> SimWorkers::Take(const std::set<LocalRank>& keep) {
  std::map<LocalRank, SimProcess> taken;
  for (const LocalRank rank : keep) {
    if (parked_.erase(rank) == 0) continue;
    alive_.erase(rank);
    taken.insert(processes_.extract(rank));
  }
  return taken;
}

bool SimWorkers::FailParked() {
  if (parked_.empty()) return false;
  auto victim = parked_.begin();
  std::advance(victim, random_.Between(0, static_cast<int64_t>(parked_.size()) - 1));
  End(*victim, Signaled{SIGKILL, false});
  return true;
}

void SimWorkers::Fail(ExitInfo exit) {
  std::vector<LocalRank> running;
  for (const LocalRank rank : alive_) {
    if (parked_.count(rank) == 0) running.push_back(rank);
  }
  if (running.empty()) return;
  End(running[random_.Between(0, static_cast<int64_t>(running.size()) - 1)], exit);
}

void SimWorkers::Kill(const std::set<LocalRank>& spare) {
  const std::set<LocalRank> killed = alive_;
  for (const LocalRank rank : killed) {
    if (spare.count(rank) == 0) End(rank, Signaled{SIGKILL, false});
  }
}

void SimWorkers::End(LocalRank rank, ExitInfo exit, bool consequence) {
  if (alive_.erase(rank) == 0) return;
  parked_.erase(rank);
  processes_.erase(rank);
  job_->hangs->Gone(assignment_, rank, host_->name(), alive_.empty());
  Detail(absl::StrCat("rank ", assignment_.first_rank.value() + rank.value(), " on ", host_->name(),
                      " ends: ", ddprun::ToString(exit)));
  // A worker that fails breaks its group, and Break closes the sockets. Otherwise the sockets are closed when
  // the last worker exits.
  if (!plain() && !over_ && !Succeeded(exit))
    Break(absl::StrCat("a worker ended: ", ddprun::ToString(exit)), true);
  if (alive_.empty()) {
    broken_ = true;
    job_->disk->Kill(writer_);
    HangUp();
  }
  outside_.ended(rank, exit, consequence);
}

void SimWorkers::HangUp() {
  if (to_master_) job_->tcp->Close(*to_master_);
  for (const auto& [connection, peer] : peers_) job_->tcp->Close(peer.socket);
  if (is_master() && !plain()) job_->tcp->Unlisten(host_->id(), assignment_.master_port);
}

void SimWorkers::Vanish() {
  if (!here_) return;
  here_.reset();
  broken_ = true;
  for (const LocalRank rank : alive_) job_->hangs->Gone(assignment_, rank, host_->name(), true);
  alive_.clear();
  parked_.clear();
  processes_.clear();
  job_->disk->Kill(writer_);
  HangUp();
}

void SimWorkers::Suspend() { job_->disk->Suspend(writer_); }
void SimWorkers::Resume() { job_->disk->Resume(writer_); }

}  // namespace ddprun::sim
