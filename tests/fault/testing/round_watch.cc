#include "tests/fault/testing/round_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fault/testing/read_all.h"

namespace ddprun {
namespace {

constexpr Duration kPeriod = milliseconds(5);
constexpr char kRound[] = "DDPRUN_ROUND=";

// A process that was just created has its program and its environment only after exec.
constexpr Duration kSettled = seconds(2);

TimePoint Now() { return std::chrono::steady_clock::now(); }

std::string Proc(pid_t pid, const char* file) { return "/proc/" + std::to_string(pid) + "/" + file; }

std::set<pid_t> Processes() {
  std::set<pid_t> found;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return found;
  while (const dirent* const entry = readdir(proc)) {
    if (const pid_t pid = std::atoi(entry->d_name); pid > 0) found.insert(pid);
  }
  closedir(proc);
  return found;
}

// Whether the process of an open /proc/PID/stat has a thread that has not exited.
bool IsAlive(int stat_fd) {
  char bytes[1024];
  const ssize_t n = pread(stat_fd, bytes, sizeof bytes, 0);
  if (n <= 0) return false;  // ESRCH: it is reaped
  const std::string stat(bytes, n);
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream fields(stat.substr(name_end + 1));
  char state = 'X';
  fields >> state;
  if (state != 'Z' && state != 'X') return true;
  std::string skipped;
  for (int field = 4; field < 20; ++field) fields >> skipped;
  int threads = 0;  // field 20; the main thread may be a zombie before the others
  fields >> threads;
  return threads > 1;
}

}  // namespace

RoundWatch::RoundWatch() : mark_("DDPRUN_FAULT_TEST=" + std::to_string(getpid()) + ".") {
  for (const pid_t pid : Processes()) others_[pid] = Now() - kSettled;
  thread_ = std::thread([this] { Run(); });
}

RoundWatch::~RoundWatch() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
  for (const auto& [pid, worker] : workers_) close(worker.stat_fd);
}

void RoundWatch::ExpectOneRoundAtATime(int rounds) {
  stops_ = true;
  thread_.join();
  EXPECT_EQ(violation_, "");
  EXPECT_GT(samples_, 0);
  EXPECT_GE(static_cast<int>(rounds_.size()), rounds) << "rounds whose workers were seen";
  testing::Test::RecordProperty("round_samples", static_cast<int>(samples_.load()));
  testing::Test::RecordProperty("round_longest_gap_ms", static_cast<int>(ToMillis(longest_gap_)));
}

void RoundWatch::Await() const {
  const int64_t before = samples_;
  const TimePoint end = Now() + seconds(20);
  while (samples_ < before + 2 && Now() < end)
    std::this_thread::yield();  // the one in progress may have begun before
  EXPECT_GE(samples_, before + 2);
}

void RoundWatch::Run() {
  TimePoint last = Now();
  while (!stops_) {
    Sample();
    std::this_thread::sleep_until(last + kPeriod);
    const TimePoint now = Now();
    longest_gap_ = std::max<Duration>(longest_gap_, now - last);
    last = now;
  }
}

bool RoundWatch::ReadRound(pid_t pid, int& round) const {
  const std::string environ = ReadAll(Proc(pid, "environ"));
  const std::string text = std::string(1, '\0') + environ;
  const std::string zero(1, '\0');
  const size_t at = text.find(zero + kRound);
  const bool is_ours = text.find(zero + mark_) != std::string::npos;
  round = at != std::string::npos && is_ours ? std::atoi(text.c_str() + at + sizeof kRound) : -1;
  return !environ.empty();
}

void RoundWatch::Discover() {
  const std::set<pid_t> present = Processes();
  const TimePoint now = Now();
  for (const pid_t pid : present) {
    if (workers_.contains(pid)) continue;
    const auto [other, is_new] = others_.try_emplace(pid, now);
    if (!is_new && now - other->second >= kSettled) continue;
    Worker worker{.stat_fd = open(Proc(pid, "stat").c_str(), O_RDONLY | O_CLOEXEC)};
    if (worker.stat_fd < 0) continue;
    if (!ReadRound(pid, worker.round) || worker.round < 0 || !IsAlive(worker.stat_fd)) {
      close(worker.stat_fd);
      continue;
    }
    others_.erase(other);
    rounds_.insert(worker.round);
    workers_.emplace(pid, worker);
  }
  std::erase_if(others_, [&](const auto& other) { return !present.contains(other.first); });
}

void RoundWatch::Sample() {
  Discover();
  int newest = -1;
  std::vector<pid_t> alive;
  for (auto worker = workers_.begin(); worker != workers_.end();) {
    if (IsAlive(worker->second.stat_fd)) {
      newest = std::max(newest, worker->second.round);
      alive.push_back(worker->first);
      ++worker;
    } else {
      close(worker->second.stat_fd);
      worker = workers_.erase(worker);
    }
  }
  // The processes were not read at one moment. One of an older round that is alive even now was alive when that of the newest round was read.
  for (const pid_t pid : alive) {
    const Worker& worker = workers_.at(pid);
    if (worker.round == newest || !IsAlive(worker.stat_fd) || !violation_.empty()) continue;
    violation_ = "process " + std::to_string(pid) + " of round " + std::to_string(worker.round) +
                 " was alive together with a worker of round " + std::to_string(newest);
  }
  ++samples_;
}

}  // namespace ddprun
