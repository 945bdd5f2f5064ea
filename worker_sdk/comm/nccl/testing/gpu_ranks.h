// Ranks with GPUs of the stand-in for CUDA and NCCL, as threads of a test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/cuda/event.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {

// A rank with a stream and memory of its GPU.
class GpuRank {
 public:
  GpuRank(Communicator comm, std::shared_ptr<Fabric> fabric, std::shared_ptr<const CudaContext> context)
      : comm(std::move(comm)),
        fabric(std::move(fabric)),
        context_(std::move(context)),
        stream_(*CudaStream::Create(context_)),
        another_stream_(*CudaStream::Create(context_)),
        gpu_(this->comm.device()) {}
  ~GpuRank() {
    Synchronize();
    const Communicator last =
        std::move(comm);  // before the memory: operations that no one waited for may use it
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  [[nodiscard]] Stream stream() const { return {gpu_, stream_.get()}; }
  [[nodiscard]] Stream AnotherStream() const { return {gpu_, another_stream_.get()}; }
  // Waits for the work in both streams.
  void Synchronize() const {
    for (const CudaStream* stream : {&stream_, &another_stream_})
      EXPECT_EQ(stream->Await(DeadlineAfter(seconds(30)), "the work of the test"), OkStatus());
  }
  [[nodiscard]] OpOptions on() const { return {.stream = stream()}; }

  // Memory with these values, which are there once the stream has copied them.
  template <typename T>
  Tensor Put(const std::vector<T>& values) {
    memory_.push_back(*DeviceMemory::Allocate(context_, values.size() * sizeof(T)));
    const Tensor tensor{memory_.back().data(), static_cast<int64_t>(values.size()), DTypeOf<T>(), gpu_};
    Write(tensor, values, stream());
    return tensor;
  }
  // Copies the values to `tensor`, in `stream`. Does not wait.
  template <typename T>
  void Write(const Tensor& tensor, const std::vector<T>& values, const Stream& stream) {
    const int64_t num_bytes = values.size() * sizeof(T);
    pinned_.push_back(*PinnedMemory::Allocate(context_, num_bytes));
    if (num_bytes > 0) std::memcpy(pinned_.back().data(), values.data(), num_bytes);
    EXPECT_EQ(CopyToDevice(*context_, tensor.data, pinned_.back().data(), num_bytes,
                           static_cast<CUstream>(stream.handle)),
              OkStatus());
  }
  // Work that is put into `later` from now on follows the work that is in `earlier` now.
  void Order(const Stream& earlier, const Stream& later) {
    CudaEvent event = *CudaEvent::Create(context_);
    EXPECT_EQ(event.Record(static_cast<CUstream>(earlier.handle)), OkStatus());
    EXPECT_EQ(event.MakeWait(static_cast<CUstream>(later.handle)), OkStatus());
  }
  // The values after the work that is in the stream now.
  template <typename T = float>
  std::vector<T> Get(const Tensor& tensor) {
    const int64_t num_bytes = tensor.count * SizeOf(tensor.dtype);
    const PinnedMemory pinned = *PinnedMemory::Allocate(context_, num_bytes);
    EXPECT_EQ(CopyToHost(*context_, pinned.data(), tensor.data, num_bytes, stream_.get()), OkStatus());
    EXPECT_EQ(stream_.Await(DeadlineAfter(seconds(30)), "a copy"), OkStatus());
    std::vector<T> values(tensor.count);
    if (num_bytes > 0) std::memcpy(values.data(), pinned.data(), num_bytes);
    return values;
  }

  // The context of the GPU.
  [[nodiscard]] const std::shared_ptr<const CudaContext>& context() const { return context_; }

  Communicator comm;
  const std::shared_ptr<Fabric> fabric;  // of `comm`

 private:
  const std::shared_ptr<const CudaContext> context_;
  const CudaStream stream_, another_stream_;
  const Device gpu_;  // of `comm`, which a test may destroy
  std::vector<DeviceMemory> memory_;
  std::vector<PinnedMemory> pinned_;
};

// GPU ranks of one round.
struct GpuWorld {
  int size = 1;
  int num_nodes = 1;  // of equal sizes
  Duration timeout = seconds(60);
  int round = 7;
};

// Whether the environment leads to the stand-in.
bool OnStandIn();

// The GPU of a rank.
int GpuOf(int rank);

struct GpuConnection {
  int rank = 0;
  StatusOr<Communicator> comm;
  std::shared_ptr<Fabric> fabric;
  NcclDevice device;
};
using GpuConnected = std::function<void(GpuConnection connection)>;

// Calls `body` on a thread for each rank, and returns when all have returned. `fault`: why rank 0 has no GPU. The environment
// of the test makes the stand-in have as many devices as there are ranks: NCCL refuses two ranks of a host on one GPU. A machine
// with real GPUs (tools/dev gpu) may have fewer. Then it skips the test, unless NCCL_MULTI_RANK_GPU_ENABLE is 1: then each rank is a
// process, because a kernel of one rank can block the allocations of another rank of its process. What `body` captures
// is then a copy, and this process must not have used CUDA before.
void ConnectGpuRanks(const GpuWorld& world, const GpuConnected& body, const Status& fault = OkStatus());

// Likewise. All ranks must have connected.
void WithGpuRanks(const GpuWorld& world, const std::function<void(GpuRank&)>& body);

}  // namespace ddprun
