// The processors of this machine: what shares a core, a cache, a NUMA node, a socket. Read from /sys.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Groups are called by their lowest processor. Those that /sys does not tell are not set: some virtual
// machines.
struct Cpu {
  int node = 0;  // NUMA node
  std::optional<int> socket = {};
  std::optional<int> core = {};   // hyperthreads of one physical core have the same
  std::optional<int> cache = {};  // its largest cache
  bool operator==(const Cpu&) const = default;
};

struct CpuTopology {
  std::map<int, Cpu> cpus;  // that are online
  std::set<int> allowed;    // of these, those that this process may use
};

// "0-2,4" as the kernel and taskset write it.
//   Errors: kInvalidArgument with the text.
absl::StatusOr<std::set<int>> ParseCpuList(absl::string_view text);
std::string FormatCpuList(const std::set<int>& cpus);

// Those that the calling thread may use.
//   Errors: kInternal: the system has more than this program can name (CPU_SETSIZE).
absl::StatusOr<std::set<int>> AllowedCpus();

// `sys`: "/sys", or a tree like it in tests. A kernel without NUMA has one node.
//   Errors: kNotFound, kInvalidArgument with the file: it is missing, or not as the kernel writes it.
absl::StatusOr<CpuTopology> ReadCpuTopology(const std::string& sys, const std::set<int>& allowed);

// Of a device at a PCI address as in Nvml::PciAddress. A machine that does not tell, -1, has one node: 0.
//   Errors: as above.
absl::StatusOr<int> NumaNodeOf(const std::string& sys, const std::string& pci_address);

}  // namespace ddprun
