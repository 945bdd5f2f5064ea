#include "launcher/numa/cpu_choice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A machine with a uniform topology. Processors c and c + num_cores are the threads of core c.
struct Machine {
  int sockets = 1;
  int nodes_per_socket = 1;
  int cores_per_node = 4;
  int threads = 1;          // per core
  int cores_per_cache = 4;  // cores that share the largest cache

  CpuTopology Topology() const {
    CpuTopology topology;
    const int num_cores = sockets * nodes_per_socket * cores_per_node;
    for (int cpu = 0; cpu < num_cores * threads; ++cpu) {
      const int core = cpu % num_cores;
      topology.cpus[cpu] = {.node = core / cores_per_node,
                            .socket = core / cores_per_node / nodes_per_socket,
                            .core = core,
                            .cache = core / cores_per_cache * cores_per_cache};
      topology.allowed.insert(cpu);
    }
    return topology;
  }
};

// Returns the chosen sets in the kernel's list format, or the error message.
std::vector<std::string> Choose(NumaBinding binding, const CpuTopology& topology,
                                const std::vector<int>& gpu_nodes, int num_workers) {
  const auto sets = ChooseCpus(binding, topology, gpu_nodes, num_workers);
  if (!sets.ok()) return {std::string(sets.status().message())};
  std::vector<std::string> texts;
  for (const std::set<int>& cpus : *sets) texts.push_back(FormatCpuList(cpus));
  return texts;
}

TEST(ChooseCpusTest, NodeBindsToAllProcessorsOfTheGpusNode) {
  const CpuTopology topology = Machine{.sockets = 2, .threads = 2}.Topology();
  EXPECT_THAT(Choose(NumaBinding::kNode, topology, {1, 0, 1}, 3),
              ElementsAre("4-7,12-15", "0-3,8-11", "4-7,12-15"));
}

TEST(ChooseCpusTest, SocketBindsToAllNodesOfTheSocket) {
  const CpuTopology topology = Machine{.sockets = 2, .nodes_per_socket = 2, .cores_per_node = 2}.Topology();
  EXPECT_THAT(Choose(NumaBinding::kSocket, topology, {0, 3}, 2), ElementsAre("0-3", "4-7"));
}

TEST(ChooseCpusTest, SocketIncludesAllProcessorsOfANodeThatSpansSockets) {
  CpuTopology topology = Machine{}.Topology();
  topology.cpus[3].socket = 1;
  EXPECT_THAT(Choose(NumaBinding::kSocket, topology, {0}, 1), ElementsAre("0-3"));
}

TEST(ChooseCpusTest, ExclusiveAssignsCoresInOrderAndTheRemainderToTheFirstGpus) {
  const Machine machine{.sockets = 2, .cores_per_node = 8, .threads = 2};
  // Three GPUs share eight cores. The last GPU has no worker but keeps its share.
  EXPECT_THAT(Choose(NumaBinding::kExclusive, machine.Topology(), {0, 1, 0, 0}, 3),
              ElementsAre("0-2,16-18", "8-15,24-31", "3-5,19-21"));
}

TEST(ChooseCpusTest, ExclusiveCountsCoresWithAnAllowedThread) {
  CpuTopology topology = Machine{.cores_per_node = 4, .threads = 2}.Topology();
  topology.allowed = {0, 5, 6, 7};  // the first thread of core 0, and the second threads of cores 1, 2 and 3
  EXPECT_THAT(Choose(NumaBinding::kExclusive, topology, {0, 0}, 2), ElementsAre("0,5", "6-7"));
}

TEST(ChooseCpusTest, ExclusiveNeedsACoreForEachGpu) {
  EXPECT_THAT(Choose(NumaBinding::kExclusive, Machine{.cores_per_node = 2}.Topology(), {0, 0, 0}, 1),
              ElementsAre("NUMA node 0 has 2 allowed cores for 3 GPUs (0, 1, 2)"));
}

TEST(ChooseCpusTest, CoreComplexesAreSharedOnlyIfThereAreTooFew) {
  const CpuTopology topology = Machine{.cores_per_node = 6, .threads = 2, .cores_per_cache = 3}.Topology();
  EXPECT_THAT(Choose(NumaBinding::kCoreComplex, topology, {0, 0, 0}, 3),
              ElementsAre("0-2,6-8", "3-5,9-11", "0-2,6-8"));
}

TEST(ChooseCpusTest, LargerCoreComplexesAreAssignedFirst) {
  CpuTopology topology = Machine{.cores_per_node = 6, .cores_per_cache = 2}.Topology();
  topology.allowed.erase(1);
  EXPECT_THAT(Choose(NumaBinding::kCoreComplex, topology, {0, 0, 0}, 3), ElementsAre("2-3", "4-5", "0"));
}

TEST(ChooseCpusTest, OnlyAllowedProcessorsAreChosen) {
  CpuTopology topology = Machine{.sockets = 2}.Topology();
  topology.allowed = {1, 2, 6};
  EXPECT_THAT(Choose(NumaBinding::kNode, topology, {0, 1}, 2), ElementsAre("1-2", "6"));
  EXPECT_THAT(Choose(NumaBinding::kSocket, topology, {0, 1}, 2), ElementsAre("1-2", "6"));
  topology.allowed = {1, 2};
  for (const auto binding :
       {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
    EXPECT_THAT(Choose(binding, topology, {0, 1}, 2),
                ElementsAre("NUMA node 1 of GPU 1 has no processor that this process may use; "
                            "allowed processors: 1-2"));
    EXPECT_THAT(Choose(binding, topology, {0, 1}, 1), ElementsAre("1-2"))
        << "the node of a GPU without a worker must not matter";
  }
}

TEST(ChooseCpusTest, EachWorkerNeedsAGpu) {
  EXPECT_THAT(Choose(NumaBinding::kNode, Machine{}.Topology(), {0}, 2),
              ElementsAre("2 workers need 2 GPUs, one for each, but 1 is visible"));
}

TEST(ChooseCpusTest, ReportsMissingTopology) {
  CpuTopology topology = Machine{}.Topology();
  for (auto& [number, cpu] : topology.cpus) cpu = {.node = 0};
  EXPECT_THAT(Choose(NumaBinding::kNode, topology, {0}, 1), ElementsAre("0-3"));
  EXPECT_THAT(Choose(NumaBinding::kSocket, topology, {0}, 1),
              ElementsAre(HasSubstr("not report which socket processor 0")));
  EXPECT_THAT(Choose(NumaBinding::kExclusive, topology, {0}, 1),
              ElementsAre(HasSubstr("not report which core")));
  EXPECT_THAT(Choose(NumaBinding::kCoreComplex, topology, {0}, 1),
              ElementsAre(HasSubstr("not report which cache")));
}

TEST(ChooseCpusTest, EveryBindingRejectsAGpuNodeWithoutProcessors) {
  const CpuTopology topology = Machine{}.Topology();
  for (const auto binding :
       {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex})
    EXPECT_THAT(Choose(binding, topology, {5}, 1),
                ElementsAre(HasSubstr("NUMA node 5 of GPU 0 has no processor")));
}

class RandomMachine {
 public:
  explicit RandomMachine(unsigned seed) : random_(seed) {
    const int nodes_per_socket = UpTo(2), cores_per_node = UpTo(6);
    const Machine machine{.sockets = UpTo(2),
                          .nodes_per_socket = nodes_per_socket,
                          .cores_per_node = cores_per_node,
                          .threads = UpTo(2),
                          .cores_per_cache = UpTo(cores_per_node)};
    topology = machine.Topology();
    for (const auto& [cpu, where] : topology.cpus) {
      if (UpTo(4) == 1) topology.allowed.erase(cpu);
    }
    gpu_nodes.resize(UpTo(6));
    for (int& node : gpu_nodes) node = UpTo(machine.sockets * nodes_per_socket) - 1;
  }

  std::set<int> AllowedOn(int node) const {
    std::set<int> cpus;
    for (const int cpu : topology.allowed) {
      if (topology.cpus.at(cpu).node == node) cpus.insert(cpu);
    }
    return cpus;
  }
  // Returns the values that the member `name` has for `cpus`.
  std::set<int> Names(std::optional<int> Cpu::*name, const std::set<int>& cpus) const {
    std::set<int> names;
    for (const int cpu : cpus) names.insert(*(topology.cpus.at(cpu).*name));
    return names;
  }
  size_t CoresOn(int node) const { return Names(&Cpu::core, AllowedOn(node)).size(); }
  size_t GpusOn(int node) const { return std::count(gpu_nodes.begin(), gpu_nodes.end(), node); }
  bool CanBind(NumaBinding binding) const {
    return std::all_of(gpu_nodes.begin(), gpu_nodes.end(), [&](int node) {
      return CoresOn(node) >= (binding == NumaBinding::kExclusive ? GpusOn(node) : 1);
    });
  }

  CpuTopology topology;
  std::vector<int> gpu_nodes;

 private:
  // Returns a random number, uniformly distributed in [1, to].
  int UpTo(int to) { return static_cast<int>(random_() % static_cast<unsigned>(to)) + 1; }
  std::mt19937 random_;
};

bool Contains(const std::set<int>& all, const std::set<int>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// Checks that `sets`, one for each GPU of `machine`, satisfy the contract of ChooseCpus.
void ExpectContract(NumaBinding binding, const RandomMachine& machine,
                    const std::vector<std::set<int>>& sets) {
  std::map<int, std::set<int>> assigned;  // keyed by node
  for (size_t gpu = 0; gpu < sets.size(); ++gpu) {
    const std::set<int>& cpus = sets[gpu];
    const int node = machine.gpu_nodes[gpu];
    ASSERT_FALSE(cpus.empty());
    switch (binding) {
      case NumaBinding::kNode:
        EXPECT_EQ(cpus, machine.AllowedOn(node));
        break;
      case NumaBinding::kSocket:
        EXPECT_TRUE(Contains(machine.topology.allowed, cpus));
        EXPECT_TRUE(Contains(cpus, machine.AllowedOn(node)));
        EXPECT_EQ(machine.Names(&Cpu::socket, cpus).size(), 1u);
        break;
      case NumaBinding::kExclusive: {
        for (const int cpu : cpus) {
          EXPECT_TRUE(assigned[node].insert(cpu).second) << cpu << " is assigned twice";
        }
        const size_t share = machine.CoresOn(node) / machine.GpusOn(node);
        const size_t cores = machine.Names(&Cpu::core, cpus).size();
        EXPECT_TRUE(cores == share || cores == share + 1) << cores << " cores instead of " << share;
        break;
      }
      case NumaBinding::kCoreComplex:
        EXPECT_TRUE(Contains(machine.AllowedOn(node), cpus));
        EXPECT_EQ(machine.Names(&Cpu::cache, cpus).size(), 1u);
        break;
    }
  }
  for (const auto& [node, cpus] : assigned) {
    EXPECT_EQ(cpus, machine.AllowedOn(node)) << "some processors are not assigned";
  }
}

TEST(ChooseCpusTest, SatisfiesItsContractOnRandomMachines) {
  int bound = 0, refused = 0;
  for (unsigned seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const RandomMachine machine(seed);
    for (const auto binding :
         {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
      const auto sets = ChooseCpus(binding, machine.topology, machine.gpu_nodes,
                                   static_cast<int>(machine.gpu_nodes.size()));
      ASSERT_EQ(sets.ok(), machine.CanBind(binding)) << sets.status();
      ++(sets.ok() ? bound : refused);
      if (sets.ok()) ExpectContract(binding, machine, *sets);
    }
  }
  EXPECT_GT(bound, 1000);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace ddprun
