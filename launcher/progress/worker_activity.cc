#include "launcher/progress/worker_activity.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/process/process_tree.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

constexpr size_t kMaxProcesses = 256;  // of a worker

// The beginning of a small file; empty if it cannot be read.
std::string ReadProc(pid_t pid, const std::string& name) {
  const UniqueFd fd(open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text;
  const ssize_t n = fd ? read(fd.get(), text.data(), text.size()) : 0;
  return n > 0 ? std::string(text.data(), static_cast<size_t>(n)) : "";
}

uint64_t WrittenBy(pid_t pid) {
  constexpr absl::string_view kName = "wchar: ";
  const std::string io = ReadProc(pid, "io");
  uint64_t bytes = 0;
  for (absl::string_view line : absl::StrSplit(io, '\n')) {
    if (absl::ConsumePrefix(&line, kName)) (void)absl::SimpleAtoi(line, &bytes);
  }
  return bytes;
}

}  // namespace

std::vector<pid_t> ProcessesOf(pid_t worker) {
  std::vector<pid_t> processes = {worker};
  for (size_t i = 0; i < processes.size(); ++i) {
    std::istringstream children(ReadProc(processes[i], absl::StrCat("task/", processes[i], "/children")));
    for (pid_t child; processes.size() < kMaxProcesses && children >> child;) processes.push_back(child);
  }
  return processes;
}

Activities ReadActivities(const std::vector<pid_t>& workers) {
  Activities activities;
  for (const pid_t worker : workers) {
    for (const pid_t pid : ProcessesOf(worker)) {
      const std::optional<ProcessEntry> entry = ReadProcess(pid);
      if (!entry) continue;
      Activity& activity = activities[worker];
      activity.cpu += entry->cpu + entry->ended_children_cpu;
      activity.written += WrittenBy(pid);
    }
  }
  return activities;
}

std::vector<pid_t> ActivityTable::Progressed(Activities activities, TimePoint now) {
  const Duration busy = (now - std::exchange(last_at_, now)) / kBusyShare;
  const Activities before = std::exchange(last_, std::move(activities));
  std::vector<pid_t> progressed;
  for (const auto& [pid, activity] : last_) {
    const auto earlier = before.find(pid);
    if (earlier == before.end()) continue;
    // The numbers also change when a process leaves the tree of its worker.
    const auto operations = operations_.find(pid);
    const bool waits_busily = operations != operations_.end() && operations->second.differ;
    if (activity.written != earlier->second.written ||
        (!waits_busily && activity.cpu - earlier->second.cpu >= busy)) {
      progressed.push_back(pid);
    }
  }
  return progressed;
}

std::vector<pid_t> ActivityTable::Launched(std::optional<std::map<pid_t, Operations>> operations) {
  if (!operations) {
    if (++missed_ > kMissed) operations_.clear();
    return {};
  }
  missed_ = 0;
  const std::map<pid_t, Operations> before = std::exchange(operations_, *std::move(operations));
  std::vector<pid_t> progressed;
  for (const auto& [pid, now] : operations_) {
    const auto earlier = before.find(pid);
    if (earlier != before.end() && earlier->second.launched != now.launched) progressed.push_back(pid);
  }
  return progressed;
}

}  // namespace ddprun
