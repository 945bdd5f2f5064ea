#include "worker_sdk/comm/host/memory_room.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

bool HasOption(const std::string& options, std::string_view option) {
  for (const std::string& one : StrSplit(options, ',')) {
    if (one == option) return true;
  }
  return false;
}

// The number after `name` in a file of lines "<name> <number>"; 0 if there is none.
uint64_t Field(const std::string& text, std::string_view name) {
  for (const std::string& line : StrSplit(text, '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() >= 2 && words[0] == name) return ParseNumber<uint64_t>(words[1]).value_or(0);
  }
  return 0;
}

// A mounted hierarchy of control groups that has the memory controller.
struct Hierarchy {
  std::string point;  // where it is mounted
  std::string top;    // the control group that is mounted there
  bool v2 = false;
};

// Parses lines of mountinfo such as "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw".
std::vector<Hierarchy> Hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  for (const std::string& line : StrSplit(ReadFile(root + "/proc/self/mountinfo").value_or(""), '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> left = Words(line.substr(0, dash)), right = Words(line.substr(dash + 3));
    if (left.size() < 5 || right.size() < 3) continue;
    const bool v2 = right[0] == "cgroup2";
    if (!v2 && !(right[0] == "cgroup" && HasOption(right[2], "memory"))) continue;
    found.push_back({.point = left[4], .top = left[3], .v2 = v2});
  }
  return found;
}

// What the control group at `dir` has left; nullopt if it has no limit.
std::optional<uint64_t> RoomOf(const std::string& dir, bool v2) {
  const auto number = [&](const char* name) {
    const std::optional<std::string> text = ReadFile(dir + name);
    const std::vector<std::string> words = text ? Words(*text) : std::vector<std::string>();
    return words.empty() ? std::nullopt : ParseNumber<uint64_t>(words[0]);
  };
  const std::optional<uint64_t> limit = number(v2 ? "/memory.max" : "/memory.limit_in_bytes");
  const std::optional<uint64_t> used = number(v2 ? "/memory.current" : "/memory.usage_in_bytes");
  if (!limit || !used) return std::nullopt;
  const std::string stat = ReadFile(dir + "/memory.stat").value_or("");
  const std::string prefix = v2 ? "" : "total_";
  const uint64_t files = Field(stat, prefix + "inactive_file") + Field(stat, prefix + "active_file");
  const uint64_t kept = *used > files ? *used - files : 0;
  return *limit > kept ? *limit - kept : 0;
}

void Limit(MemoryRoom* room, uint64_t num_bytes, const std::string& by) {
  if (num_bytes < room->num_bytes) *room = {.num_bytes = num_bytes, .limited_by = by};
}

std::string Mebibytes(uint64_t num_bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(num_bytes) / (1 << 20));
  return text;
}

}  // namespace

MemoryRoom RoomOfThisProcess(const std::string& root) {
  MemoryRoom room;
  const std::string machine = ReadFile(root + "/proc/meminfo").value_or("");
  if (const uint64_t kibibytes = Field(machine, "MemAvailable:"); kibibytes > 0) {
    Limit(&room, kibibytes * 1024, "this machine");
  }
  const std::vector<Hierarchy> hierarchies = Hierarchies(root);
  for (const std::string& line : StrSplit(ReadFile(root + "/proc/self/cgroup").value_or(""), '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool v2 = line.compare(0, second, "0:") == 0;
    if (!v2 && !HasOption(line.substr(first + 1, second - first - 1), "memory")) continue;
    const std::string name = line.substr(second + 1);
    for (const Hierarchy& hierarchy : hierarchies) {
      if (hierarchy.v2 != v2) continue;
      // The part of the name below the group that is mounted. In a container, both are usually "/".
      std::string below = name;
      if (hierarchy.top != "/" && below.compare(0, hierarchy.top.size(), hierarchy.top) == 0) {
        below.erase(0, hierarchy.top.size());
      }
      if (below == "/") below.clear();
      while (true) {
        const std::optional<uint64_t> left = RoomOf(root + hierarchy.point + below, v2);
        if (left) Limit(&room, *left, StrCat("control group ", below.empty() ? "/" : below));
        if (below.empty()) break;
        below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
      }
    }
  }
  return room;
}

Status CheckRoom(const MemoryRoom& room, uint64_t num_bytes, const std::string& what) {
  if (num_bytes <= room.num_bytes) return OkStatus();
  return ResourceExhaustedError(StrCat(what, " need ", Mebibytes(num_bytes), " of shared memory, and ",
                                       room.limited_by, " has ", Mebibytes(room.num_bytes),
                                       " left: raise its limit, or use less memory"));
}

}  // namespace ddprun
