// Reads this machine's processors from /sys, with the core, cache, NUMA node and socket of each.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// A core or cache is identified by the lowest number of its processors, and a socket by its own number. Some
// virtual machines do not report all fields in /sys; the missing fields are nullopt.
struct Cpu {
  int node = 0;  // NUMA node
  std::optional<int> socket = {};
  std::optional<int> core = {};   // equal for all hyperthreads of a physical core
  std::optional<int> cache = {};  // the processor's largest cache
  bool operator==(const Cpu&) const = default;
};

struct CpuTopology {
  std::map<int, Cpu> cpus;  // online processors
  std::set<int> allowed;    // the online processors that this process may use
};

// Parses a list of processors in the format of the kernel and of taskset, such as "0-2,4".
//   Errors: kInvalidArgument, with `text` in the message.
absl::StatusOr<std::set<int>> ParseCpuList(absl::string_view text);
// Returns a list that ParseCpuList accepts.
std::string FormatCpuList(const std::set<int>& cpus);

// Returns the processors that the calling thread may use.
//   Errors: kInternal: sched_getaffinity failed, for example because there are more than CPU_SETSIZE
//           processors.
absl::StatusOr<std::set<int>> AllowedCpus();

// Reads the topology. On a kernel without NUMA support, all processors are on node 0.
//   sys:     "/sys", or a similar tree in tests.
//   allowed: processors that this process may use. Processors that are not online are ignored.
//   Errors:  kNotFound: a file is missing.
//            kInvalidArgument: a file is malformed. Both messages name the file.
absl::StatusOr<CpuTopology> ReadCpuTopology(const std::string& sys, const std::set<int>& allowed);

// Returns the NUMA node of the device at `pci_address`, in the format that Nvml::PciAddress returns. Returns
// 0 if the system reports no node (-1) for the device.
//   Errors: those of ReadCpuTopology.
absl::StatusOr<int> NumaNodeOf(const std::string& sys, const std::string& pci_address);

}  // namespace ddprun
