// message_bench [RANKS_OF_NODE,...]: measures messages between the first and the last rank, with one process per rank:
// half the time in which a message goes to the peer and back, and the rate of messages in one direction, eight of which
// are in flight.
//   RANKS_OF_NODE: number of ranks on each node; all nodes are on this machine. Default: "2".
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {8, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 25 << 20};
constexpr int kInFlight = 8;

double MicrosSince(TimePoint begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

Status PingPong(Communicator& comm, std::vector<char>& bytes, int runs) {
  const int last = comm.size() - 1;
  std::vector<double> micros;
  for (int i = -5; i < runs; ++i) {
    const TimePoint begin = Clock::now();
    if (comm.rank() == 0) {
      DDPRUN_RETURN_IF_ERROR(comm.Send(View(bytes), last).Wait());
      DDPRUN_RETURN_IF_ERROR(comm.Receive(View(bytes), last).Wait());
    } else if (comm.rank() == last) {
      DDPRUN_RETURN_IF_ERROR(comm.Receive(View(bytes), 0).Wait());
      DDPRUN_RETURN_IF_ERROR(comm.Send(View(bytes), 0).Wait());
    }
    if (i >= 0) micros.push_back(MicrosSince(begin) / 2);
  }
  if (comm.rank() == 0) std::printf("%12zu %8d %12.2f", bytes.size(), runs, Median(micros));
  return OkStatus();
}

// Each run sends kInFlight messages and waits for an empty answer.
Status Stream(Communicator& comm, std::vector<char>& bytes, int runs) {
  const int last = comm.size() - 1;
  std::vector<double> micros;
  std::vector<Work> works(kInFlight);
  for (int i = -2; i < runs; ++i) {
    const TimePoint begin = Clock::now();
    if (comm.rank() != 0 && comm.rank() != last) continue;
    for (Work& work : works)
      work = comm.rank() == 0 ? comm.Send(View(bytes), last) : comm.Receive(View(bytes), 0);
    for (Work& work : works) DDPRUN_RETURN_IF_ERROR(work.Wait());
    const Tensor nothing{nullptr, 0, DType::kUInt8};
    DDPRUN_RETURN_IF_ERROR((comm.rank() == 0 ? comm.Receive(nothing, last) : comm.Send(nothing, 0)).Wait());
    if (i >= 0) micros.push_back(MicrosSince(begin));
  }
  if (comm.rank() == 0) {
    std::printf(" %10.2f\n",
                kInFlight * static_cast<double>(bytes.size()) / Median(micros) * 1e6 / (1 << 30));
    std::fflush(stdout);
  }
  return OkStatus();
}

int RunRank(const RankProcess& self) {
  FakeFileStore store(self.store_dir);
  auto comm = CreateHostCommunicator(self.options, &store);
  Status s = comm.status();
  for (const size_t size : kSizes) {
    std::vector<char> bytes(size);
    const int runs = static_cast<int>(std::clamp<size_t>((512 << 20) / size, 20, 20000));
    if (s.ok()) s = PingPong(*comm, bytes, runs);
    if (s.ok()) s = Stream(*comm, bytes, std::max(5, runs / kInFlight));
  }
  if (s.ok()) s = comm->Barrier().Wait();
  if (!s.ok()) std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return s.ok() ? 0 : 1;
}

int Main(int argc, char** argv) {
  std::vector<int> split;
  for (std::string_view word : StrSplit(argc > 1 ? argv[1] : "2", ',')) {
    split.push_back(ParseNumber<int>(word).value_or(0));
    if (split.back() >= 1) continue;
    std::fprintf(stderr, "usage: message_bench [RANKS_OF_NODE,...]\n");
    return 2;
  }
  std::printf("%12s %8s %12s %10s\n", "bytes", "runs", "median us", "GiB/s");
  std::fflush(stdout);
  RankProcesses ranks(split, {});
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
