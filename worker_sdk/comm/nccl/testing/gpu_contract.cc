#include "worker_sdk/comm/nccl/testing/gpu_contract.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/testing/message_contract.h"

namespace ddprun {
namespace {

// All values are small integers, so that sums are exact in any order.
void OperationsHaveTheirResults(GpuRank& gpu) {
  Communicator& comm = gpu.comm;
  const int n = comm.size(), r = comm.rank();
  EXPECT_EQ(comm.device().type, DeviceType::kCuda);
  const auto mine = static_cast<float>(r + 1);
  const auto sum = static_cast<float>(n * (n + 1) / 2);
  const Tensor reduced = gpu.Put<float>({mine, 2 * mine, 3});
  EXPECT_EQ(comm.AllReduce(reduced, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get(reduced), (std::vector<float>{sum, 2 * sum, 3.0f * n}));

  const Tensor in = gpu.Put<float>({mine, -mine}), out = gpu.Put<float>({0, 0});
  EXPECT_EQ(comm.AllReduce(in, out, ReduceOp::kMax, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get(out), (std::vector<float>{static_cast<float>(n), -1}));
  EXPECT_EQ(comm.AllReduce(in, out, ReduceOp::kMin, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get(out), (std::vector<float>{1, -static_cast<float>(n)}));
  const Tensor twos = gpu.Put<int64_t>({2});
  EXPECT_EQ(comm.AllReduce(twos, ReduceOp::kProduct, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get<int64_t>(twos), std::vector<int64_t>{int64_t{1} << n});
  const Tensor mean = gpu.Put<double>({static_cast<double>(2 * n)});
  EXPECT_EQ(comm.AllReduce(mean, ReduceOp::kMean, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get<double>(mean), std::vector<double>{2.0 * n});

  const int root = n - 1;
  const Tensor at_root = gpu.Put<float>({0});
  EXPECT_EQ(comm.Reduce(gpu.Put<float>({mine}), at_root, ReduceOp::kSum, root, gpu.on()).Wait(), OkStatus());
  if (r == root) {
    EXPECT_EQ(gpu.Get(at_root), std::vector<float>{sum});
  }
  const Tensor sent = gpu.Put<int32_t>({r, r});
  EXPECT_EQ(comm.Broadcast(sent, root, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get<int32_t>(sent), (std::vector<int32_t>{root, root}));

  std::vector<int32_t> each, all, to_each, from_each;
  for (int i = 0; i < n; ++i) {
    each.push_back(i * n);  // its sum: i * n * n
    all.push_back(i + 1);
    to_each.push_back(100 * r + i);
    from_each.push_back(100 * i + r);
  }
  const Tensor part = gpu.Put<int32_t>({0});
  EXPECT_EQ(comm.ReduceScatter(gpu.Put(each), part, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get<int32_t>(part), std::vector<int32_t>{r * n * n});
  const Tensor gathered = gpu.Put(std::vector<int32_t>(n));
  EXPECT_EQ(comm.AllGather(gpu.Put<int32_t>({r + 1}), gathered, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get<int32_t>(gathered), all);
  const Tensor exchanged = gpu.Put(std::vector<int32_t>(n));
  EXPECT_EQ(comm.AllToAll(gpu.Put(to_each), exchanged, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get<int32_t>(exchanged), from_each);

  // Operations on the host go on beside them.
  std::vector<float> host = {mine};
  EXPECT_EQ(comm.AllReduce(View(host), ReduceOp::kSum).Wait(), OkStatus());
  EXPECT_EQ(host, std::vector<float>{sum});
  EXPECT_EQ(comm.status(), OkStatus());
}

// The host waits only at the end: the order is that of the streams.
void StreamsWaitForOperations(GpuRank& gpu) {
  const int n = gpu.comm.size();
  constexpr int kNum = 20;
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < kNum; ++i) {
    tensors.push_back(gpu.Put<float>({static_cast<float>(i)}));
    works.push_back(gpu.comm.AllReduce(tensors.back(), ReduceOp::kSum, gpu.on()));
  }
  for (Work& work : works) EXPECT_EQ(work.WaitOn(gpu.stream()), OkStatus());
  for (int i = 0; i < kNum; ++i) {
    EXPECT_EQ(gpu.Get(tensors[i]), std::vector<float>{static_cast<float>(i * n)}) << i;
    EXPECT_EQ(works[i].Wait(), OkStatus());
    EXPECT_TRUE(works[i].Done());
  }
  EXPECT_EQ(gpu.comm.Barrier().WaitOn(gpu.stream()).code(), StatusCode::kInvalidArgument);
}

// The copy of the result is in the stream before the operation has ended.
void AStreamWaitsForTheLastOperation(GpuRank& gpu) {
  const auto n = static_cast<float>(gpu.comm.size());
  for (int i = 0; i < 10; ++i) {
    const Tensor in = gpu.Put<float>({1}), out = gpu.Put<float>({0});
    // The last operation is not pending when the communicator is destroyed, although the host has not waited for it.
    EXPECT_EQ(gpu.comm.AllReduce(in, out, ReduceOp::kSum, gpu.on()).WaitOn(gpu.stream()), OkStatus());
    EXPECT_EQ(gpu.Get(out), std::vector<float>{n}) << i;
  }
}

void AllocatesZeroedMemory(GpuRank& gpu) {
  const StatusOr<Buffer> buffer = gpu.comm.Allocate(DType::kFloat32, 1000, gpu.comm.device());
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(gpu.Get(buffer->tensor()), std::vector<float>(1000));
  EXPECT_EQ(gpu.comm.AllReduce(buffer->tensor(), ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
}

void OperationsWithoutElementsComplete(GpuRank& gpu) {
  const Tensor none{nullptr, 0, DType::kFloat32, gpu.comm.device()};
  EXPECT_EQ(gpu.comm.AllReduce(none, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.comm.AllGather(none, none, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.comm.AllToAll(none, none, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.comm.Broadcast(none, 0, gpu.on()).Wait(), OkStatus());
  EXPECT_TRUE(gpu.comm.Allocate(DType::kFloat32, 0, gpu.comm.device()).ok());
}

void PartsHaveOperationsOfTheirOwn(GpuRank& gpu) {
  const int color = gpu.comm.rank() % 2;
  StatusOr<Communicator> part = gpu.comm.Split(color);
  ASSERT_TRUE(part.ok()) << part.status();
  const Tensor ones = gpu.Put<float>({1});
  EXPECT_EQ(part->AllReduce(ones, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
  EXPECT_EQ(gpu.Get(ones), std::vector<float>{static_cast<float>(part->size())});
  const StatusOr<Communicator> none = gpu.comm.Split(Communicator::kNoColor);
  EXPECT_TRUE(none.ok() && none->size() == 0);
}

constexpr GpuContractCase kCases[] = {
    {"OperationsHaveTheirResults", OperationsHaveTheirResults},
    {"StreamsWaitForOperations", StreamsWaitForOperations},
    {"AStreamWaitsForTheLastOperation", AStreamWaitsForTheLastOperation},
    {"AllocatesZeroedMemory", AllocatesZeroedMemory},
    {"OperationsWithoutElementsComplete", OperationsWithoutElementsComplete},
    {"PartsHaveOperationsOfTheirOwn", PartsHaveOperationsOfTheirOwn},
    {"RanksOfARingSendFirst", RanksOfARingSendFirst},
    {"LargeMessagesOfAllPairsAreInFlightTogether", LargeMessagesOfAllPairsAreInFlightTogether},
    {"MessagesOfBothKindsMatchInTheirOrder", MessagesOfBothKindsMatchInTheirOrder},
    {"StreamsWaitForMessages", StreamsWaitForMessages},
    {"PartsHaveMessagesOfTheirOwn", PartsHaveMessagesOfTheirOwn},
};

}  // namespace

std::span<const GpuContractCase> GpuContract() { return kCases; }

}  // namespace ddprun
