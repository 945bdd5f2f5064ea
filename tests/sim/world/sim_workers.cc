#include "tests/sim/world/sim_workers.h"

#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun::sim {
namespace {

// Timeout of a collective, including the first connection to the master.
constexpr Duration kCollectiveTimeout = seconds(20);
constexpr Duration kConnectPause = milliseconds(50);

}  // namespace

SimWorkers::SimWorkers(SimJob* job, SimHost* host, const Assignment& assignment, int nproc, Random random,
                       Outside outside)
    : job_(job),
      host_(host),
      assignment_(assignment),
      random_(std::move(random)),
      outside_(std::move(outside)) {
  for (int i = 0; i < nproc; ++i) alive_.insert(LocalRank(i));
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
  const Duration start = random_.Between(milliseconds(1), milliseconds(200));
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
    return SimTcp::Handlers{.on_message =
                                [this, socket](const std::string& message) {
                                  int64_t step = 0;
                                  if (absl::SimpleAtoi(message, &step)) OnPeerDone(socket.connection, step);
                                },
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
  job_->tcp->Send(*to_master_, "-1");
}

void SimWorkers::OnMessage(const std::string& message) {
  if (broken_) return;
  ++said_;
  int64_t step = 0;
  if (absl::SimpleAtoi(message, &step)) {
    Go(step);
  } else {
    Succeed();
  }
}

void SimWorkers::OnPeerDone(uint64_t connection, int64_t step) {
  ++said_;
  peers_[connection].done = step;
  MaybeAdvance();
}

void SimWorkers::MaybeAdvance() {
  if (broken_) return;
  int ready = 1;
  for (const auto& [connection, peer] : peers_)
    ready += peer.done == step_ + 1 || (step_ < 0 && peer.done == -1);
  if (ready < assignment_.group_world_size || (step_ >= 0 && !step_done_)) return;
  if (step_ < 0) {
    // Since all nodes have connected, this round is the current one.
    if (!job_->disk->Take(writer_, seen_)) return Break("another writer has taken the directory", false);
    Detail(
        absl::StrCat("workers of round ", round().value(), " continue from step ", job_->disk->NewestStep()));
    Go(job_->disk->NewestStep());
    return;
  }
  ++job_->steps_done;
  const int64_t step = step_ + 1;
  const bool last = step >= job_->settings->total_steps;
  if (last || snapshot_wanted_ || step % job_->settings->snapshot_every == 0) {
    step_ = step;
    step_done_ = false;
    return Write();
  }
  Go(step);
}

void SimWorkers::Write() {
  const bool wanted = std::exchange(snapshot_wanted_, false);
  job_->disk->Write(writer_, round(), step_, [this, wanted, step = step_](SimDisk::Outcome outcome) {
    ++said_;
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
    Go(step);
  });
}

void SimWorkers::Go(int64_t step) {
  step_ = step;
  step_done_ = false;
  outside_.report(step, snapshot_step_);
  if (step >= job_->settings->total_steps) {
    if (is_master()) Tell("end");
    return is_master() ? Succeed() : void();
  }
  if (is_master()) Tell(absl::StrCat(step));
  const Duration usual = job_->settings->step_time;
  After(random_.Between(usual / 2, usual + usual / 2), [this] { Done(); });
}

void SimWorkers::Done() {
  step_done_ = true;
  if (is_master()) return MaybeAdvance();
  job_->tcp->Send(*to_master_, absl::StrCat(step_ + 1));
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
    host_->After(random_.Between(milliseconds(0), milliseconds(100)),
                 [this, here = std::weak_ptr<bool>(here_), rank, consequence] {
                   if (!here.expired()) End(rank, Exited{1}, consequence);
                 });
  }
}

void SimWorkers::Watch() {
  After(kCollectiveTimeout, [this, said = said_] {
    if (over_) return;
    if (said == said_ && !(is_master() && assignment_.group_world_size == 1)) {
      return Break("no message from another node for too long", true);
    }
    Watch();
  });
}

void SimWorkers::Signal(int signo) {
  if (std::exchange(saving_, true)) return;
  Detail(absl::StrCat("workers of ", host_->name(), " get ", SignalName(signo)));
  // A write in progress may complete, and plain workers may finish their work.
  if (!plain() && !over_) broken_ = true;
  for (const LocalRank rank : alive_) {
    host_->After(random_.Between(Duration(0), job_->settings->save),
                 [this, here = std::weak_ptr<bool>(here_), rank, signo] {
                   if (!here.expired()) End(rank, Signaled{signo, false});
                 });
  }
}

void SimWorkers::Fail(ExitInfo exit) {
  if (alive_.empty()) return;
  auto victim = alive_.begin();
  std::advance(victim, random_.Between(0, static_cast<int64_t>(alive_.size()) - 1));
  End(*victim, exit);
}

void SimWorkers::Kill() {
  const std::set<LocalRank> killed = alive_;
  for (const LocalRank rank : killed) End(rank, Signaled{SIGKILL, false});
}

void SimWorkers::End(LocalRank rank, ExitInfo exit, bool consequence) {
  if (alive_.erase(rank) == 0) return;
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
  alive_.clear();
  job_->disk->Kill(writer_);
  HangUp();
}

void SimWorkers::Suspend() { job_->disk->Suspend(writer_); }
void SimWorkers::Resume() { job_->disk->Resume(writer_); }

}  // namespace ddprun::sim
