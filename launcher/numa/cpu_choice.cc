#include "launcher/numa/cpu_choice.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

using CpuSet = std::set<int>;
using CpuSets = std::vector<CpuSet>;

// A NUMA node with its allowed processors and its GPUs.
struct Node {
  int number = 0;
  CpuSet allowed = {};
  std::vector<int> gpus = {};  // indexes of the GPUs, ascending
};

CpuSet AllowedOf(const CpuTopology& topology, int node) {
  CpuSet cpus;
  for (const int cpu : topology.allowed) {
    if (topology.cpus.at(cpu).node == node) cpus.insert(cpu);
  }
  return cpus;
}

absl::Status NotReported(absl::string_view what, int cpu) {
  return absl::FailedPreconditionError(
      absl::StrCat("this system does not report ", what, " processor ", cpu, " is on"));
}

// Groups `cpus` by the member `name`. Returns kFailedPrecondition if the member is nullopt for a processor.
absl::StatusOr<std::map<int, CpuSet>> GroupBy(std::optional<int> Cpu::*name, absl::string_view what,
                                              const CpuSet& cpus, const CpuTopology& topology) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) {
    const std::optional<int> group = topology.cpus.at(cpu).*name;
    if (!group) return NotReported(what, cpu);
    groups[*group].insert(cpu);
  }
  return groups;
}

// Returns the allowed processors of all nodes on the socket of `node`. A node that spans several sockets
// counts as a node of the socket of its first processor.
absl::StatusOr<CpuSet> SocketOf(int node, const CpuTopology& topology) {
  std::map<int, int> first_of_node;
  for (const auto& [number, cpu] : topology.cpus) first_of_node.emplace(cpu.node, number);
  const int own = first_of_node.at(node);
  const std::optional<int> socket = topology.cpus.at(own).socket;
  if (!socket) return NotReported("which socket", own);
  CpuSet cpus;
  for (const auto& [other, first] : first_of_node) {
    if (topology.cpus.at(first).socket == socket) cpus.merge(AllowedOf(topology, other));
  }
  return cpus;
}

// Returns one set for each of the node's GPUs, in order.
absl::StatusOr<CpuSets> DealCores(const Node& node, const CpuTopology& topology) {
  ASSIGN_OR_RETURN(const auto cores, GroupBy(&Cpu::core, "which core", node.allowed, topology));
  const size_t each = cores.size() / node.gpus.size();
  const size_t left_over = cores.size() % node.gpus.size();
  if (each == 0) {
    return absl::FailedPreconditionError(absl::StrCat("NUMA node ", node.number, " has ", cores.size(),
                                                      " allowed cores for ", node.gpus.size(), " GPUs (",
                                                      absl::StrJoin(node.gpus, ", "), ")"));
  }
  CpuSets sets;
  auto core = cores.begin();
  for (size_t i = 0; i < node.gpus.size(); ++i) {
    CpuSet& set = sets.emplace_back();
    for (size_t n = 0; n < each + (i < left_over ? 1 : 0); ++n, ++core)
      set.insert(core->second.begin(), core->second.end());
  }
  return sets;
}

absl::StatusOr<CpuSets> DealCaches(const Node& node, const CpuTopology& topology) {
  ASSIGN_OR_RETURN(const auto caches, GroupBy(&Cpu::cache, "which cache", node.allowed, topology));
  CpuSets groups;
  for (const auto& [name, cpus] : caches) groups.push_back(cpus);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
  CpuSets sets;
  for (size_t i = 0; i < node.gpus.size(); ++i) sets.push_back(groups[i % groups.size()]);
  return sets;
}

// Returns one set for each of the node's GPUs, in order.
absl::StatusOr<CpuSets> ChooseOnNode(NumaBinding binding, const Node& node, const CpuTopology& topology) {
  switch (binding) {
    case NumaBinding::kNode:
      return CpuSets(node.gpus.size(), node.allowed);
    case NumaBinding::kSocket: {
      ASSIGN_OR_RETURN(const CpuSet socket, SocketOf(node.number, topology));
      return CpuSets(node.gpus.size(), socket);
    }
    case NumaBinding::kExclusive:
      return DealCores(node, topology);
    case NumaBinding::kCoreComplex:
      return DealCaches(node, topology);
  }
  return absl::InternalError("unknown NUMA binding");
}

}  // namespace

const char* NameOf(NumaBinding binding) {
  switch (binding) {
    case NumaBinding::kNode:
      return "node";
    case NumaBinding::kSocket:
      return "socket";
    case NumaBinding::kExclusive:
      return "exclusive";
    case NumaBinding::kCoreComplex:
      return "core-complex";
  }
  return "";
}

absl::StatusOr<CpuSets> ChooseCpus(NumaBinding binding, const CpuTopology& topology,
                                   const std::vector<int>& gpu_nodes, int num_workers) {
  const auto num_gpus = static_cast<int>(gpu_nodes.size());
  if (num_gpus < num_workers) {
    return absl::FailedPreconditionError(absl::StrCat(num_workers, " workers need ", num_workers,
                                                      " GPUs, one for each, but ", num_gpus,
                                                      num_gpus == 1 ? " is" : " are", " visible"));
  }
  std::map<int, Node> nodes;
  for (int gpu = 0; gpu < num_gpus; ++gpu) nodes[gpu_nodes[gpu]].gpus.push_back(gpu);
  CpuSets sets(num_gpus);
  for (auto& [number, node] : nodes) {
    if (node.gpus.front() >= num_workers) continue;  // No GPU of this node has a worker.
    node.number = number;
    node.allowed = AllowedOf(topology, number);
    if (node.allowed.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("NUMA node ", number, " of GPU ", node.gpus.front(),
                       " has no processor that this process may use; allowed processors: ",
                       FormatCpuList(topology.allowed)));
    }
    ASSIGN_OR_RETURN(const CpuSets chosen, ChooseOnNode(binding, node, topology));
    for (size_t i = 0; i < chosen.size(); ++i) sets[node.gpus[i]] = chosen[i];
  }
  sets.resize(num_workers);
  return sets;
}

}  // namespace ddprun
