#include "launcher/report/oom_evidence.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun {
namespace {

// Larger than any memory size. If there is no limit, the kernel reports "max" or a number above this value.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<std::string> ReadFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  char buffer[16 << 10];
  ssize_t n;
  while ((n = read(fd.get(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  if (n < 0) return std::nullopt;
  return text;
}

// Returns the number after `key` in a text that consists of lines "key number".
std::optional<int64_t> Field(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int64_t value;
    if (absl::ConsumePrefix(&line, key) && absl::ConsumePrefix(&line, " ") &&
        absl::SimpleAtoi(line, &value)) {
      return value;
    }
  }
  return std::nullopt;
}

// Returns the number of kilobytes that follows `key`; 0 if `key` is missing.
int64_t Kilobytes(absl::string_view line, absl::string_view key) {
  const size_t at = line.find(key);
  if (at == absl::string_view::npos) return 0;
  line.remove_prefix(at + key.size());
  int64_t value = 0;
  return absl::SimpleAtoi(line.substr(0, line.find_first_not_of("0123456789")), &value) ? value : 0;
}

bool HasOption(absl::string_view options, absl::string_view option) {
  for (const absl::string_view o : absl::StrSplit(options, ',')) {
    if (o == option) return true;
  }
  return false;
}

}  // namespace

OomWatch::OomWatch(Files files) : files_(std::move(files)), mounts_(FindMounts()), own_(GroupOf("self")) {
  if (KernelLogHasOurPids(files_.proc)) kernel_log_.emplace(files_.kernel_log);
}

// Parses lines such as "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory".
std::vector<OomWatch::Mount> OomWatch::FindMounts() const {
  std::vector<Mount> mounts;
  const std::string text = ReadFile(files_.proc + "/self/mountinfo").value_or("");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> left = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> right = absl::StrSplit(halves.second, ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool v2 = right[0] == "cgroup2";
    if (!v2 && !(right[0] == "cgroup" && HasOption(right[2], "memory"))) continue;
    mounts.push_back({.point = absl::StrCat(files_.root, left[4]), .root = std::string(left[3]), .v2 = v2});
  }
  return mounts;
}

// Parses lines such as "4:memory:/job" (v1) and "0::/job" (v2). If a system has both versions, only one of
// them has the memory controller.
std::optional<OomWatch::Group> OomWatch::GroupOf(const std::string& process) const {
  const std::string text = ReadFile(absl::StrCat(files_.proc, "/", process, "/cgroup")).value_or("");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool v2 = fields[0] == "0" && fields[1].empty();
    if (!v2 && !HasOption(fields[1], "memory")) continue;
    for (const Mount& mount : mounts_) {
      absl::string_view path = fields[2];
      if (mount.v2 != v2 || (mount.root != "/" && !absl::ConsumePrefix(&path, mount.root))) continue;
      Group group = {.name = std::string(fields[2]), .dir = mount.point};
      if (path != "/") absl::StrAppend(&group.dir, path);
      const std::optional<int64_t> kills = Kills(group.dir);
      if (!kills) continue;
      group.kills = *kills;
      return group;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> OomWatch::Kills(const std::string& dir) const {
  for (const char* name : {"/memory.events", "/memory.oom_control"}) {  // v2, v1
    if (const auto text = ReadFile(dir + name)) return Field(*text, "oom_kill");
  }
  return std::nullopt;
}

std::optional<int64_t> OomWatch::Limit(const Group& group) const {
  int64_t least = kNoLimit;
  std::string dir = group.dir;
  const auto is_top = [&] {
    return std::any_of(mounts_.begin(), mounts_.end(), [&](const Mount& m) { return m.point == dir; });
  };
  for (bool top = false; !top && !dir.empty(); dir.resize(dir.rfind('/'))) {
    top = is_top();
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {  // v2, v1
      int64_t limit;
      const auto text = ReadFile(dir + name);
      if (text && absl::SimpleAtoi(*text, &limit)) least = std::min(least, limit);
    }
  }
  return least < kNoLimit ? std::optional(least) : std::nullopt;
}

std::string OomWatch::LimitText(const Group& group) const {
  const std::optional<int64_t> limit = Limit(group);
  return absl::StrCat(
      "control group ", group.name,
      limit ? absl::StrCat(" (memory limit ", InBytes(static_cast<uint64_t>(*limit)), ")") : "");
}

void OomWatch::Add(pid_t worker) {
  std::optional<Group> group = GroupOf(absl::StrCat(worker));
  if (group && (!own_ || group->dir != own_->dir)) others_[worker] = *std::move(group);
}

// Parses texts such as "Memory cgroup out of memory: Killed process 150 (python3) total-vm:2kB, anon-rss:1kB, ..."
void OomWatch::ReadKernelLog() {
  if (!kernel_log_) return;
  kernel_log_->ReadNew([this](absl::string_view line) {
    const size_t at = line.find("Killed process ");
    if (at == absl::string_view::npos) return;
    absl::string_view rest = line.substr(at + sizeof "Killed process " - 1);
    int pid;
    if (!absl::SimpleAtoi(rest.substr(0, rest.find(' ')), &pid)) return;
    const int64_t used =
        Kilobytes(rest, "anon-rss:") + Kilobytes(rest, "file-rss:") + Kilobytes(rest, "shmem-rss:");
    killed_[pid] = absl::StrCat(
        "the kernel's OOM killer killed process ", rest.substr(0, rest.rfind(')', rest.find("total-vm")) + 1),
        ", which used ", InBytes(static_cast<uint64_t>(used) * 1024), ": ",
        absl::StrContains(line.substr(0, at), "Memory cgroup") ? "out of memory in "
                                                               : "the machine was out of memory");
  });
}

std::vector<std::string> OomWatch::Evidence(pid_t worker) {
  const auto other = others_.find(worker);
  const std::optional<Group> group = other != others_.end() ? std::optional(other->second) : own_;
  ReadKernelLog();
  if (const auto killed = killed_.find(worker); killed != killed_.end()) {
    const bool of_group = absl::EndsWith(killed->second, "memory in ");
    return {absl::StrCat(killed->second, !of_group ? "" : group ? LimitText(*group) : "its control group")};
  }
  if (!group) return {};
  const int64_t kills = Kills(group->dir).value_or(0) - group->kills;
  if (kills <= 0) return {};
  return {absl::StrCat("the kernel's OOM killer killed ", kills, kills == 1 ? " process" : " processes",
                       " in ", LimitText(*group), " since this worker started")};
}

}  // namespace ddprun
