// allreduce_bench [RANKS_OF_NODE,...] [CHUNK_BYTES] [ALGORITHM]: measures how long an all-reduce of floats
// takes at each of several sizes, with one process per rank.
//   RANKS_OF_NODE: number of ranks on each node; all nodes are on this machine. "2" means one node with two
//                  ranks, which share memory; "1,1" means two nodes with one rank each. Default: "2".
//   CHUNK_BYTES:   HostCommunicatorOptions::chunk_bytes. Default: the default of that option.
//   ALGORITHM:     the algorithm for all sizes, by its name in all_reduce_choice.h. Default: "chosen", which
//                  means that ChooseAllReduce selects an algorithm for each chunk.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {4,        128,       256,     512,     1 << 10,  4 << 10, 16 << 10,
                             64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

constexpr char kChosen[] = "chosen";

std::optional<AllReduceAlgorithm> AlgorithmNamed(std::string_view name) {
  for (int i = 0; i < kNumAllReduceAlgorithms; ++i) {
    if (NameOf(AllReduceAlgorithm{i}) == name) return AllReduceAlgorithm{i};
  }
  return std::nullopt;
}

Status Measure(Communicator& comm, size_t num_bytes) {
  std::vector<float> values(num_bytes / sizeof(float), 1.0f);
  const int runs = static_cast<int>(std::clamp<size_t>((256 << 20) / num_bytes, 11, 2000));
  std::vector<double> micros;
  for (int i = -3; i < runs; ++i) {
    const TimePoint begin = Clock::now();
    Status s = comm.AllReduce(View(values), ReduceOp::kMean).Wait(begin + seconds(60));
    if (!s.ok()) return s;
    if (i >= 0) micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(micros.begin(), micros.end());
  const double median = micros[micros.size() / 2];
  if (comm.rank() == 0) {
    std::printf("%12zu %8d %12.1f %12.1f %10.2f\n", num_bytes, runs, median, micros[micros.size() * 9 / 10],
                static_cast<double>(num_bytes) / median * 1e6 / (1 << 30));
    std::fflush(stdout);
  }
  return OkStatus();
}

int RunRank(RankProcess self) {
  const auto chunk_bytes = ParseNumber<size_t>(self.args[0]);
  if (!chunk_bytes) return 2;
  self.options.chunk_bytes = *chunk_bytes;
  FakeFileStore store(self.store_dir);
  const std::optional<AllReduceAlgorithm> only = AlgorithmNamed(self.args[1]);
  auto comm = only ? CreateHostCommunicatorForTest(self.options, &store, *only)
                   : CreateHostCommunicator(self.options, &store);
  Status s = comm.status();
  for (size_t size : kSizes) {
    if (s.ok()) s = Measure(*comm, size);
  }
  if (!s.ok()) std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return s.ok() ? 0 : 1;
}

int Usage() {
  std::fprintf(stderr, "usage: allreduce_bench [RANKS_OF_NODE,...] [CHUNK_BYTES] [ALGORITHM]\n");
  return 2;
}

int Main(int argc, char** argv) {
  std::vector<int> split;
  for (std::string_view word : StrSplit(argc > 1 ? argv[1] : "2", ',')) {
    const std::optional<int> n = ParseNumber<int>(word);
    if (!n || *n < 1) return Usage();
    split.push_back(*n);
  }
  const std::string chunk_bytes = argc > 2 ? argv[2] : StrCat(HostCommunicatorOptions().chunk_bytes);
  const std::string algorithm = argc > 3 ? argv[3] : kChosen;
  const std::optional<AllReduceAlgorithm> only = AlgorithmNamed(algorithm);
  if (algorithm != kChosen &&
      (!only || (*only == AllReduceAlgorithm::kSharedMemory) != (split.size() == 1))) {
    std::fprintf(stderr, "no algorithm \"%s\" for %zu node(s)\n", algorithm.c_str(), split.size());
    return Usage();
  }
  std::printf("nodes %s, chunks of %s bytes, algorithm %s\n", argc > 1 ? argv[1] : "2", chunk_bytes.c_str(),
              algorithm.c_str());
  std::printf("%12s %8s %12s %12s %10s\n", "bytes", "runs", "median us", "p90 us", "GiB/s");
  std::fflush(stdout);
  RankProcesses ranks(split, {chunk_bytes, algorithm});
  ranks.StartAll();
  int failed = 0;
  for (int r = 0; r < ranks.world_size(); ++r) failed += ranks.Wait(r, seconds(600)).value_or(1) != 0;
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunRank(*self);
  return ddprun::Main(argc, argv);
}
