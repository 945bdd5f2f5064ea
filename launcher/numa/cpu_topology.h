// The processors of this machine and the cores, caches, NUMA nodes and sockets they share, read from /sys.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// A core or cache is identified by its lowest processor number, a socket by its own number. Fields that /sys
// does not report, as on some virtual machines, are nullopt.
struct Cpu {
  int node = 0;  // NUMA node
  std::optional<int> socket = {};
  std::optional<int> core = {};   // equal for all hyperthreads of a physical core
  std::optional<int> cache = {};  // the largest cache
  bool operator==(const Cpu&) const = default;
};

struct CpuTopology {
  std::map<int, Cpu> cpus;  // online processors
  std::set<int> allowed;    // the online processors that this process may use
};

// Parses and formats processor lists as the kernel and taskset write them: "0-2,4".
//   Errors: kInvalidArgument, with `text` in the message.
absl::StatusOr<std::set<int>> ParseCpuList(absl::string_view text);
std::string FormatCpuList(const std::set<int>& cpus);

// Returns the processors that the calling thread may use.
//   Errors: kInternal: sched_getaffinity failed, for example because there are more than CPU_SETSIZE
//           processors.
absl::StatusOr<std::set<int>> AllowedCpus();

// Reads the topology. On a kernel without NUMA support, all processors are on node 0.
//   sys:     "/sys", or a similar tree in tests.
//   allowed: processors that this process may use; those that are not online are ignored.
//   Errors:  kNotFound: a file is missing; kInvalidArgument: it is malformed. Both name the file.
absl::StatusOr<CpuTopology> ReadCpuTopology(const std::string& sys, const std::set<int>& allowed);

// Returns the NUMA node of the device at `pci_address`, which has the form of Nvml::PciAddress. A device
// without a node (-1) is on node 0.
//   Errors: those of ReadCpuTopology.
absl::StatusOr<int> NumaNodeOf(const std::string& sys, const std::string& pci_address);

}  // namespace ddprun
