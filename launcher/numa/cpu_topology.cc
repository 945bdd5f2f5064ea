#include "launcher/numa/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// Larger than the number of processors that any kernel supports.
constexpr int kMaxCpu = 1 << 16;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  absl::StripAsciiWhitespace(&text);
  return text;
}

absl::StatusOr<int> ReadNumber(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  int number;
  if (!absl::SimpleAtoi(text, &number))
    return absl::InvalidArgumentError(absl::StrCat(path, " holds \"", text, "\", not a number"));
  return number;
}

absl::StatusOr<std::set<int>> ReadCpuList(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  ASSIGN_OR_RETURN(std::set<int> cpus, ParseCpuList(text), path);
  return cpus;
}

// Returns N for each entry "<prefix>N" in a directory, in ascending order; empty if the directory does not
// exist.
std::vector<int> NumberedEntries(const std::string& directory, absl::string_view prefix) {
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    int number;
    if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix.data(), prefix.size()) == 0 &&
        absl::SimpleAtoi(name.substr(prefix.size()), &number)) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::optional<int> Lowest(const absl::StatusOr<std::set<int>>& cpus) {
  if (!cpus.ok() || cpus->empty()) return std::nullopt;
  return *cpus->begin();
}

// Returns the lowest number of the processors that share the data or unified cache with the highest level.
std::optional<int> LargestCache(const std::string& directory) {
  int highest = -1;
  std::optional<int> cache;
  for (const int index : NumberedEntries(directory, "index")) {
    const std::string entry = absl::StrCat(directory, "/index", index);
    const std::string type = ReadText(entry + "/type").value_or("");
    const int level = ReadNumber(entry + "/level").value_or(-1);
    if ((type != "Unified" && type != "Data") || level <= highest) continue;
    highest = level;
    cache = Lowest(ReadCpuList(entry + "/shared_cpu_list"));
  }
  return cache;
}

}  // namespace

absl::StatusOr<std::set<int>> ParseCpuList(absl::string_view text) {
  std::set<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view range = absl::StripAsciiWhitespace(part);
    if (range.empty()) continue;  // A node without processors has an empty list.
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first, last;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last > kMaxCpu) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\": expected a list of processors such as \"0-2,4\""));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

std::string FormatCpuList(const std::set<int>& cpus) {
  std::vector<std::string> ranges;
  for (auto it = cpus.begin(); it != cpus.end();) {
    const int first = *it;
    int last = first;
    while (++it != cpus.end() && *it == last + 1) last = *it;
    ranges.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  return absl::StrJoin(ranges, ",");
}

absl::StatusOr<std::set<int>> AllowedCpus() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
    return absl::InternalError(
        absl::StrCat("sched_getaffinity for ", CPU_SETSIZE, " processors: ", std::strerror(errno)));
  }
  std::set<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.insert(cpu);
  }
  return cpus;
}

absl::StatusOr<CpuTopology> ReadCpuTopology(const std::string& sys, const std::set<int>& allowed) {
  CpuTopology topology;
  const std::string nodes = sys + "/devices/system/node";
  const std::vector<int> numbers = NumberedEntries(nodes, "node");
  for (const int node : numbers) {
    ASSIGN_OR_RETURN(const std::set<int> cpus, ReadCpuList(absl::StrCat(nodes, "/node", node, "/cpulist")));
    for (const int cpu : cpus) topology.cpus[cpu].node = node;
  }
  if (numbers.empty()) {
    ASSIGN_OR_RETURN(const std::set<int> cpus, ReadCpuList(sys + "/devices/system/cpu/online"));
    for (const int cpu : cpus) topology.cpus[cpu].node = 0;
  }
  for (auto& [number, cpu] : topology.cpus) {
    const std::string directory = absl::StrCat(sys, "/devices/system/cpu/cpu", number);
    cpu.core = Lowest(ReadCpuList(directory + "/topology/thread_siblings_list"));
    if (const auto socket = ReadNumber(directory + "/topology/physical_package_id"); socket.ok())
      cpu.socket = *socket;
    cpu.cache = LargestCache(directory + "/cache");
    if (allowed.count(number) > 0) topology.allowed.insert(number);
  }
  return topology;
}

absl::StatusOr<int> NumaNodeOf(const std::string& sys, const std::string& pci_address) {
  ASSIGN_OR_RETURN(const int node,
                   ReadNumber(absl::StrCat(sys, "/bus/pci/devices/", pci_address, "/numa_node")));
  return std::max(node, 0);
}

}  // namespace ddprun
