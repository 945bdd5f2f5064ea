// How callers, and the helper thread, wait for messages.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "worker_sdk/comm/host/futex.h"
#include "worker_sdk/comm/host/hold_up.h"
#include "worker_sdk/comm/host/point_to_point.h"
#include "worker_sdk/comm/host/point_to_point_message.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// How long a caller polls before it sleeps, if every rank of the node has a processor of its own. A message of a running
// peer arrives within this time.
constexpr Duration kSpin = std::chrono::microseconds(20);
// The helper steps this often while messages are pending, and after kIdlePolls times without any sleeps.
constexpr Duration kPoll = std::chrono::microseconds(200);
constexpr int kIdlePolls = 50;
// Steps that the helper takes before a caller can take over.
constexpr int kMaxHelperSteps = 16;
// A caller that waits for other nodes sleeps in poll, which the bell does not end, but an error does. It checks this often
// whether a rank has left, and this often if it also waits for ranks of its node or for SetReady.
constexpr Duration kRemoteSleep = milliseconds(100);
constexpr Duration kMixedSleep = std::chrono::microseconds(200);

}  // namespace

void PointToPoint::Await(Message& message, TimePoint deadline) {
  std::unique_lock<std::mutex> lock(mu_);
  if (message.finished()) return;
  caller_waits_ = true;
  if (!spins_) spins_ = segment_->RanksHaveOwnProcessors();
  TimePoint last_moved = Clock::now();
  while (!message.finished()) {
    if (num_in_set_ready_.load() > 0) YieldTo(lock);
    const bool moved = Step();
    if (message.finished()) break;
    const TimePoint now = Clock::now();
    if (now >= deadline) {
      GiveUp(message);
      deadline = TimePoint::max();  // the next Step fails the message
    } else if (moved) {
      last_moved = now;
    } else if (*spins_ && !message.transfer().is_starved() && now - last_moved < kSpin) {
      CpuRelax();
    } else {
      Sleep(lock, message, deadline);
      last_moved = Clock::now();
    }
  }
  caller_waits_ = false;
  left_.notify_one();
  if (num_pending_ > 0 && helper_sleeps_) changed_.notify_one();
}

// A mutex is not fair: without this, a caller that moves data would keep it until the window is used up.
void PointToPoint::YieldTo(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  while (num_in_set_ready_.load() > 0) std::this_thread::yield();
  lock.lock();
}

void PointToPoint::Sleep(std::unique_lock<std::mutex>& lock, const Message& message, TimePoint deadline) {
  Bell& bell = segment_->bell(self_.local_rank);
  bell.PrepareToSleep(message.peer());
  if (Step()) {
    bell.Awake();
    return;
  }
  bool any_local = false, any_remote = false, any_starved = false;
  std::vector<pollfd> polls{{.fd = self_.ended_fd, .events = POLLIN, .revents = 0}};
  TimePoint wake = deadline;
  for (const Peer* peer : active_) {
    (peer->is_local ? any_local : any_remote) = true;
    if (peer->tcp == nullptr) continue;
    const bool sends = !peer->sends.pending.empty(), receives = !peer->receives.pending.empty();
    const bool starved_send = peer->sends.is_starved(), starved_receive = peer->receives.is_starved();
    any_starved = any_starved || starved_send || starved_receive;
    peer->tcp->AddPolls(sends && !starved_send, receives && !starved_receive, polls);
    if (peer->watch != nullptr) polls.push_back(peer->watch->polled());
  }
  if (NeedsConnection()) wake = std::min(wake, door_->listener.AddPolls(polls));
  lock.unlock();
  if (!any_remote) {
    bell.Sleep(wake);
  } else {
    const Duration most = any_local || any_starved ? kMixedSleep : kRemoteSleep;
    const Duration left = std::clamp<Duration>(wake - Clock::now(), Duration::zero(), most);
    const timespec timeout = {.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(left).count()};
    ppoll(polls.data(), polls.size(), &timeout, nullptr);
  }
  lock.lock();
  bell.Awake();
  for (const Peer* peer : active_) {
    if (peer->tcp != nullptr) peer->tcp->CheckSilence();
  }
}

// Names the ranks that do not answer, or the message whose payload is not ready, or else the rank that is not waiting: the peer,
// or a rank of this node for which the peer waits, and so on.
void PointToPoint::GiveUp(const Message& message) {
  const std::vector<int> silent =
      RanksThatDoNotAnswer(topology_, self_.node, self_.local_rank, *segment_, monitor_);
  const RankRange local = topology_.nodes[self_.node];
  int awaited = message.peer();
  for (int i = 0; i < local.size() && awaited >= local.lo && awaited < local.hi; ++i) {
    const int next = segment_->bell(awaited - local.lo).AwaitedRank();
    if (next == Bell::kNone) break;
    awaited = next == self_.rank ? message.peer() : next;
    if (next == self_.rank) break;
  }
  std::string cause = StrCat("rank ", silent.empty() ? StrCat(NameOf(awaited)) : StrJoin(silent, ", "));
  const Peer& peer = *peers_[message.peer()];
  const Queue& queue = message.is_send() ? peer.sends : peer.receives;
  if (silent.empty() && queue.is_starved())
    cause = StrCat("the work in the stream before ", Name(*queue.pending.front()));
  monitor_->SetDead(DeadlineExceededError(StrCat("rank ", NameOf(self_.rank), " of round ", self_.round,
                                                 " gave up operation ", message.transfer().call.index, " (",
                                                 Name(message), "), waiting for ", cause)));
}

void PointToPoint::SetReady(Message& message, std::span<char> window, size_t num_ready) {
  ++num_in_set_ready_;
  const std::lock_guard<std::mutex> lock(mu_);
  --num_in_set_ready_;
  if (message.finished()) return;
  message.transfer().window = window;
  message.transfer().num_ready = num_ready;
  segment_->bell(self_.local_rank).RingLoudly();  // the caller may sleep
}

void PointToPoint::EndFor(const Message& message) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!message.finished() && segment_->DeadStatus().ok()) GiveUp(message);
}

// The helper thread: steps while messages are pending and no caller waits.
void PointToPoint::Help() {
  std::unique_lock<std::mutex> lock(mu_);
  int idle_polls = 0;
  while (!stopping_) {
    const bool has_work = num_pending_ > 0 && !caller_waits_;
    idle_polls = has_work ? 0 : idle_polls + 1;
    if (idle_polls > kIdlePolls) {
      helper_sleeps_ = true;
      changed_.wait(lock, [this] { return stopping_ || (num_pending_ > 0 && !caller_waits_); });
      helper_sleeps_ = false;
      idle_polls = 0;
      continue;
    }
    for (int i = 0; has_work && i < kMaxHelperSteps && Step(); ++i) {
    }
    lock.unlock();
    std::this_thread::sleep_for(kPoll);
    lock.lock();
  }
}

}  // namespace ddprun
