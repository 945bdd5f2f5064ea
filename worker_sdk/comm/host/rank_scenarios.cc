#include "worker_sdk/comm/host/rank_scenarios.h"

#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

int Fail(const RankProcess& self, std::string_view what) {
  std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(self.options.rank.value()),
               std::string(what).c_str());
  return kWrongResult;
}

int Report(const RankProcess& self, const Status& status) {
  FakeFileStore store(self.store_dir);
  (void)store.Set(StrCat("outcome/", self.options.rank.value()), status.ToString());
  return kEnded;
}

// Returns the input of `rank` to operation `index`. Every rank can compute the inputs of all ranks, because
// inputs are deterministic.
template <typename T>
std::vector<T> InputOf(int rank, int index, size_t n) {
  std::mt19937 random(1000 * index + rank);
  std::vector<T> values(n);
  for (T& v : values)
    v = static_cast<T>(std::ldexp(static_cast<double>(random()) - 2147483648.0, random() % 24));
  return values;
}

template <typename T>
T ReferenceSum(const std::vector<std::vector<T>>& inputs, size_t i, int lo, int hi) {
  if (hi - lo == 1) return inputs[lo][i];
  int power = 1;
  while (2 * power < hi - lo) power *= 2;
  return ReferenceSum(inputs, i, lo, lo + power) + ReferenceSum(inputs, i, lo + power, hi);
}

template <typename T>
std::vector<T> ExpectedReduction(int world, int index, size_t n, ReduceOp op) {
  std::vector<std::vector<T>> inputs;
  for (int r = 0; r < world; ++r) inputs.push_back(InputOf<T>(r, index, n));
  std::vector<T> result(n);
  for (size_t i = 0; i < n; ++i) {
    result[i] = ReferenceSum(inputs, i, 0, world);
    if (op == ReduceOp::kMean) result[i] /= static_cast<T>(world);
  }
  return result;
}

// An operation that was started, and its expected result.
struct Started {
  std::unique_ptr<Pending> pending;
  std::vector<char> buffer, input, expected;
};

template <typename T>
std::vector<char> Bytes(const std::vector<T>& values) {
  const char* begin = reinterpret_cast<const char*>(values.data());
  return std::vector<char>(begin, begin + values.size() * sizeof(T));
}

template <typename T>
void StartReduce(Communicator& comm, int index, size_t n, ReduceOp op, Started* started) {
  started->buffer = Bytes(InputOf<T>(comm.rank().value(), index, n));
  started->expected = Bytes(ExpectedReduction<T>(comm.world_size(), index, n, op));
  started->pending = comm.AllReduce(std::span(reinterpret_cast<T*>(started->buffer.data()), n), op);
}

std::unique_ptr<Started> StartRandom(Communicator& comm, int index, std::mt19937& random) {
  auto started = std::make_unique<Started>();
  const size_t n = random() % 4 == 0 ? random() % 4 : random() % 5000;  // a chunk has 4096 bytes
  const int world = comm.world_size();
  switch (random() % 6) {
    case 0:
      StartReduce<float>(comm, index, n, ReduceOp::kSum, started.get());
      break;
    case 1:
      StartReduce<float>(comm, index, n, ReduceOp::kMean, started.get());
      break;
    case 2:
      StartReduce<double>(comm, index, n, ReduceOp::kMean, started.get());
      break;
    case 3: {
      const int root = static_cast<int>(random() % world);
      started->buffer = InputOf<char>(comm.rank().value(), index, n);
      started->expected = InputOf<char>(root, index, n);
      started->pending = comm.Broadcast(std::span(started->buffer), Rank(root));
      break;
    }
    case 4: {
      started->input = InputOf<char>(comm.rank().value(), index, n);
      started->buffer.resize(n * world);
      for (int r = 0; r < world; ++r) {
        const auto theirs = InputOf<char>(r, index, n);
        started->expected.insert(started->expected.end(), theirs.begin(), theirs.end());
      }
      started->pending = comm.AllGather(started->input, std::span(started->buffer));
      break;
    }
    default:
      started->pending = comm.Barrier();
  }
  return started;
}

// random <seed> <count>: runs operations of all kinds and sizes, with up to eight in flight, and compares
// their results bit by bit.
int RandomOperations(const RankProcess& self, Communicator& comm) {
  std::mt19937 random(std::stoi(self.args[1]));
  const int count = std::stoi(self.args[2]);
  std::vector<std::unique_ptr<Started>> in_flight;
  for (int index = 0; index < count; ++index) {
    in_flight.push_back(StartRandom(comm, index, random));
    if (index + 1 < count && in_flight.size() < 1 + random() % 8) continue;
    for (auto& started : in_flight) {
      if (Status s = started->pending->Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
      if (started->buffer != started->expected) return Fail(self, StrCat("wrong result before ", index));
    }
    in_flight.clear();
  }
  return 0;
}

// algorithm <number>: computes sums and means with one algorithm, at sizes near the boundaries of slices,
// pieces and chunks, and compares the results with the definition bit by bit.
int ReduceWithOneAlgorithm(const RankProcess& self, Communicator& comm) {
  int index = 0;
  for (const size_t n : {0, 1, 2, 15, 16, 17, 31, 33, 64, 100, 255, 512, 1000, 1023, 1024, 1025, 5000}) {
    for (const bool wide : {false, true}) {
      const ReduceOp op = index % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMean;
      Started started;
      if (wide) {
        StartReduce<double>(comm, index++, n, op, &started);
      } else {
        StartReduce<float>(comm, index++, n, op, &started);
      }
      if (Status s = started.pending->Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
      if (started.buffer != started.expected) return Fail(self, StrCat("wrong result of ", n));
    }
  }
  return 0;
}

// forever: runs all-reduces until one fails.
int ReduceForever(const RankProcess& self, Communicator& comm) {
  FakeFileStore store(self.store_dir);
  std::vector<float> values(1 << 20, 1.0f);
  for (int i = 0;; ++i) {
    auto pending = comm.AllReduce(std::span(values), ReduceOp::kMean);
    if (i == 3) (void)store.Set(StrCat("ready/", self.options.rank.value()), "");
    Status s = pending->Wait(Soon());
    if (s.ok()) continue;
    // The communicator is dead: later operations fail with the same error.
    const Status again = comm.AllReduce(std::span(values), ReduceOp::kSum)->Wait(Soon());
    if (again != s) return Fail(self, StrCat("then: ", again.ToString(), ", first: ", s.ToString()));
    return Report(self, s);
  }
}

// stop <victim>: the victim stops itself during its sixth all-reduce. From that all-reduce on, the others use
// a short deadline.
int StopInTheMiddle(const RankProcess& self, Communicator& comm) {
  constexpr int kStop = 5;
  const bool victim = comm.rank() == Rank(std::stoi(self.args[1]));
  std::vector<float> values(1 << 16, 1.0f);
  for (int i = 0;; ++i) {
    auto pending = comm.AllReduce(std::span(values), ReduceOp::kMean);
    if (victim && i == kStop) raise(SIGSTOP);
    Status s = pending->Wait(i < kStop ? Soon() : Clock::now() + milliseconds(500));
    if (!s.ok()) return Report(self, s);
  }
}

// Returns when all ranks have called MeetInStore, so that setup is complete on all of them.
void MeetInStore(const RankProcess& self) {
  FakeFileStore store(self.store_dir);
  (void)store.Set(StrCat("here/", self.options.rank.value()), "");
  for (int r = 0; r < self.options.world_size; ++r) {
    (void)store.Get(StrCat("here/", r), seconds(60)).status();
  }
}

// ahead: the last rank starts its first operation after the others have started two, and leaves after that
// operation.
int StartAhead(const RankProcess& self, Communicator& comm) {
  const bool last = comm.rank() == Rank(comm.world_size() - 1);
  std::vector<float> first(1000, 1.0f), second(1000, 1.0f);
  if (last) {
    MeetInStore(self);
    return Report(self, comm.AllReduce(std::span(first), ReduceOp::kSum)->Wait(Soon()));
  }
  const auto pending = comm.AllReduce(std::span(first), ReduceOp::kSum);
  const auto more = comm.AllReduce(std::span(second), ReduceOp::kSum);
  MeetInStore(self);
  if (Status s = pending->Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  if (first != std::vector<float>(1000, static_cast<float>(comm.world_size())))
    return Fail(self, "wrong sum");
  return Report(self, more->Wait(Soon()));
}

// two: like `ahead`, but the last rank starts the second operation as well, after a barrier on another
// communicator.
int StartAheadOfAnother(const RankProcess& self, Communicator& comm, Communicator& other) {
  const bool last = comm.rank() == Rank(comm.world_size() - 1);
  std::vector<float> first(1000, 1.0f), second(1000, 1.0f);
  std::unique_ptr<Pending> pending, more;
  if (last) MeetInStore(self);
  pending = comm.AllReduce(std::span(first), ReduceOp::kSum);
  if (!last) more = comm.AllReduce(std::span(second), ReduceOp::kSum);
  if (!last) MeetInStore(self);
  const TimePoint deadline = Clock::now() + seconds(20);
  if (Status s = pending->Wait(deadline); !s.ok()) return Fail(self, s.ToString());
  if (Status s = other.Barrier()->Wait(deadline); !s.ok()) return Fail(self, s.ToString());
  if (last) more = comm.AllReduce(std::span(second), ReduceOp::kSum);
  if (Status s = more->Wait(deadline); !s.ok()) return Fail(self, s.ToString());
  return 0;
}

// differ-*: the last rank behaves differently from the other ranks.
int LastRankDiffers(const RankProcess& self, Communicator& comm) {
  const bool last = comm.rank() == Rank(comm.world_size() - 1);
  const std::string& what = self.args[0];
  std::vector<float> values(1000, 1.0f);
  Status s;
  if (what != "differ-leave") MeetInStore(self);
  if (what == "differ-size") {
    s = comm.AllReduce(std::span(values).first(last ? 999 : 1000), ReduceOp::kSum)->Wait(Soon());
  } else if (what == "differ-abort") {
    if (last) comm.Abort("out of memory");
    s = comm.Barrier()->Wait(Soon());
  } else if (what == "differ-leave") {
    if (last) return Report(self, OkStatus());
    s = comm.AllReduce(std::span(values), ReduceOp::kSum)->Wait(Soon());
  }
  return Report(self, s);
}

// late: node 0 runs broadcasts and leaves; the other nodes start theirs after node 0's processes have exited.
int LateToBroadcasts(const RankProcess& self, Communicator& comm) {
  if (self.options.group_rank != GroupRank(0)) {
    FakeFileStore store(self.store_dir);
    const auto gone = store.Get(kFirstNodeGone, seconds(60));
    if (!gone.ok()) return Fail(self, gone.status().ToString());
  }
  for (int index = 0; index < 5; ++index) {
    std::vector<char> values = InputOf<char>(comm.rank().value(), index, 1000);
    Status s = comm.Broadcast(std::span(values), Rank(0))->Wait(Soon());
    if (!s.ok()) return Fail(self, s.ToString());
    if (values != InputOf<char>(0, index, 1000)) return Fail(self, StrCat("wrong result of ", index));
  }
  return 0;
}

}  // namespace

int RunRank(const RankProcess& self) {
  HostCommunicatorOptions options = self.options;
  if (self.args[0] == "random" || self.args[0] == "algorithm") options.chunk_bytes = 4096;
  FakeFileStore store(self.store_dir);
  auto comm = self.args[0] == "algorithm" ? CreateHostCommunicatorForTest(
                                                options, &store, AllReduceAlgorithm{std::stoi(self.args[1])})
                                          : CreateHostCommunicator(options, &store);
  if (!comm.ok()) {
    Report(self, comm.status());
    return Fail(self, comm.status().ToString());
  }
  if (self.args[0] == "ahead") return StartAhead(self, **comm);
  if (self.args[0] == "two") {
    FakeFileStore other_store(self.store_dir + "/other");
    auto other = CreateHostCommunicator(options, &other_store);
    if (!other.ok()) return Fail(self, other.status().ToString());
    return StartAheadOfAnother(self, **comm, **other);
  }
  if (self.args[0] == "algorithm") return ReduceWithOneAlgorithm(self, **comm);
  if (self.args[0] == "random") return RandomOperations(self, **comm);
  if (self.args[0] == "late") return LateToBroadcasts(self, **comm);
  if (self.args[0] == "stop") return StopInTheMiddle(self, **comm);
  if (self.args[0] == "forever") return ReduceForever(self, **comm);
  return LastRankDiffers(self, **comm);
}

}  // namespace ddprun
