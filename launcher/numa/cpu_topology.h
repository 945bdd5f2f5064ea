// The processors of this machine and the cores, caches, NUMA nodes and sockets they share, read from /sys.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// A core or cache is named by its lowest processor, a socket by its number. Fields that /sys does not report,
// as on some virtual machines, are not set.
struct Cpu {
  int node = 0;  // NUMA node
  std::optional<int> socket = {};
  std::optional<int> core = {};   // the same for all hyperthreads of a physical core
  std::optional<int> cache = {};  // the largest cache
  bool operator==(const Cpu&) const = default;
};

struct CpuTopology {
  std::map<int, Cpu> cpus;  // online processors
  std::set<int> allowed;    // the subset that this process may use
};

// Lists in the format of the kernel and taskset: "0-2,4".
//   Errors: kInvalidArgument with the text.
absl::StatusOr<std::set<int>> ParseCpuList(absl::string_view text);
std::string FormatCpuList(const std::set<int>& cpus);

// Returns the processors that the calling thread may use.
//   Errors: kInternal: sched_getaffinity fails, as on a system with more than CPU_SETSIZE processors.
absl::StatusOr<std::set<int>> AllowedCpus();

// Reads the topology. A kernel without NUMA has one node, 0.
//   sys:     "/sys", or a similar tree in tests.
//   allowed: processors that this process may use; those that are not online are ignored.
//   Errors:  kNotFound: a file is missing; kInvalidArgument: it is malformed. Both name the file.
absl::StatusOr<CpuTopology> ReadCpuTopology(const std::string& sys, const std::set<int>& allowed);

// Returns the NUMA node of the device at `pci_address`, which has the form of Nvml::PciAddress. A device
// without a node (-1) is on node 0.
//   Errors: those of ReadCpuTopology.
absl::StatusOr<int> NumaNodeOf(const std::string& sys, const std::string& pci_address);

}  // namespace ddprun
