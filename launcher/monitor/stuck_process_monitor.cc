#include "launcher/monitor/stuck_process_monitor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/process/process_tree.h"

namespace ddprun {

StuckProcessMonitor::StuckProcessMonitor(boost::asio::io_context& io, std::optional<Duration> limit,
                                         Handler on_stuck)
    : on_stuck_(std::move(on_stuck)), timer_(io) {
  if (limit) table_.emplace(*limit);
}

void StuckProcessMonitor::Add(pid_t pid) {
  if (!table_) return;
  pids_.insert(pid);
  if (!std::exchange(looking_, true)) LookLater();
}

void StuckProcessMonitor::LookLater() {
  timer_.expires_after(table_->Interval());
  timer_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    if (!error) Look();
  }));
}

void StuckProcessMonitor::Look() {
  std::map<pid_t, char> states;
  std::map<pid_t, pid_t> threads;  // keyed by process: the thread whose state is recorded in `states`
  for (const pid_t pid : pids_) {
    const std::optional<ProcessEntry> entry = ReadProcess(pid);
    states[pid] = entry ? entry->state : '?';
    threads[pid] = entry ? entry->thread : pid;
  }
  for (const SleepTable::Sleeper& sleeper : table_->Look(states, std::chrono::steady_clock::now())) {
    const std::string wait = KernelWait(threads[sleeper.pid]);
    on_stuck_(sleeper.pid, absl::StrFormat("in uninterruptible sleep (state D) for %.1f s%s",
                                           std::chrono::duration<double>(sleeper.slept).count(),
                                           wait.empty() ? "" : absl::StrCat(", waiting in ", wait)));
  }
  looking_ = !pids_.empty();
  if (looking_) LookLater();
}

std::vector<SleepTable::Sleeper> SleepTable::Look(const std::map<pid_t, char>& states, TimePoint now) {
  std::erase_if(sleeps_, [&](const auto& s) {
    const auto it = states.find(s.first);
    return it == states.end() || it->second != 'D';
  });
  std::vector<Sleeper> too_long;
  for (const auto& [pid, state] : states) {
    if (state != 'D') continue;
    Sleep& sleep = sleeps_.try_emplace(pid, Sleep{.since = now}).first->second;
    if (sleep.reported || now - sleep.since < limit_) continue;
    sleep.reported = true;
    too_long.push_back({.pid = pid, .slept = now - sleep.since});
  }
  return too_long;
}

Duration SleepTable::Interval() const {
  return std::clamp<Duration>(limit_ / 4, milliseconds(10), seconds(1));
}

}  // namespace ddprun
