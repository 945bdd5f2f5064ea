#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "worker_sdk/comm/device_text.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/array_ops.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/driver.h"
#include "worker_sdk/device/cuda/event.h"
#include "worker_sdk/device/cuda/kernels.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/module.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {
namespace {

// For work of this object that nothing else waits for.
constexpr Duration kLimit = seconds(10);

CUstream HandleOf(const Stream& stream) { return static_cast<CUstream>(stream.handle); }

int64_t BytesOf(const ConstTensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

template <typename T>
T* As(const Tensor& tensor) {
  DDPRUN_CHECK(sizeof(T) == SizeOf(tensor.dtype), NameOf(tensor.dtype));
  return static_cast<T*>(tensor.data);
}
template <typename T>
const T* As(const ConstTensor& tensor) {
  DDPRUN_CHECK(sizeof(T) == SizeOf(tensor.dtype), NameOf(tensor.dtype));
  return static_cast<const T*>(tensor.data);
}

class CudaArrayOps final : public ArrayOps {
 public:
  static StatusOr<std::unique_ptr<ArrayOps>> Open(int index) {
    DDPRUN_ASSIGN_OR_RETURN(const CudaDriver* const driver, OpenCudaDriver());
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<const CudaContext> context, CudaContext::Open(driver, index));
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<const CudaKernels> kernels,
                            CudaKernels::Load(context, KernelsImage()));
    DDPRUN_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create(context));
    DDPRUN_ASSIGN_OR_RETURN(CudaEvent order, CudaEvent::Create(context));
    DDPRUN_ASSIGN_OR_RETURN(CudaEvent await, CudaEvent::Create(context));
    return std::unique_ptr<ArrayOps>(new CudaArrayOps(std::move(context), std::move(kernels),
                                                      std::move(stream), std::move(order), std::move(await)));
  }
  ~CudaArrayOps() override { (void)stream_.Await(DeadlineAfter(kLimit), "the work of the SDK"); }

  Device device() const override { return {DeviceType::kCuda, context_->index()}; }
  Stream stream() const override { return {device(), stream_.get()}; }

  Status CheckStream(const Stream& stream) const override {
    if (stream.device != device()) {
      return InvalidArgumentError(
          StrCat("the memory is ", Describe(device()), ", but the stream is ", Describe(stream.device)));
    }
    if (stream.handle == nullptr) {
      return InvalidArgumentError(
          StrCat("the memory is ", Describe(device()),
                 ", but the stream has no handle: the default stream is not allowed"));
    }
    return context_->CheckStream(HandleOf(stream));
  }
  Status Order(const Stream& earlier, const Stream& later) override {
    if (earlier.handle == later.handle) return OkStatus();
    DDPRUN_RETURN_IF_ERROR(order_.Record(HandleOf(earlier)));
    return order_.MakeWait(HandleOf(later));
  }
  Status Await(const Stream& stream, TimePoint deadline, std::string_view what) override {
    DDPRUN_RETURN_IF_ERROR(await_.Record(HandleOf(stream)));
    return await_.Await(deadline, what);
  }

  StatusOr<std::shared_ptr<void>> Allocate(int64_t num_bytes) override {
    DDPRUN_ASSIGN_OR_RETURN(DeviceMemory allocated, DeviceMemory::Allocate(context_, num_bytes));
    const auto owner = std::make_shared<DeviceMemory>(std::move(allocated));
    DDPRUN_RETURN_IF_ERROR(FillBytes(*context_, owner->data(), 0, num_bytes, stream_.get()));
    DDPRUN_RETURN_IF_ERROR(Await(stream(), DeadlineAfter(kLimit), "clearing memory"));
    return std::shared_ptr<void>(owner, owner->data());
  }
  StatusOr<std::shared_ptr<void>> AllocateOnHost(int64_t num_bytes) override {
    DDPRUN_ASSIGN_OR_RETURN(PinnedMemory allocated, PinnedMemory::Allocate(context_, num_bytes));
    const auto owner = std::make_shared<PinnedMemory>(std::move(allocated));
    std::fill_n(static_cast<char*>(owner->data()), num_bytes, 0);
    return std::shared_ptr<void>(owner, owner->data());
  }

  Status Copy(const Stream& stream, const ConstTensor& from, const Tensor& to) override {
    return CopyOnDevice(*context_, to.data, from.data, BytesOf(from), HandleOf(stream));
  }
  Status CopyToHost(const Stream& stream, const ConstTensor& from, void* host) override {
    return ddprun::CopyToHost(*context_, host, from.data, BytesOf(from), HandleOf(stream));
  }
  Status CopyFromHost(const Stream& stream, const void* host, const Tensor& to) override {
    return CopyToDevice(*context_, to.data, host, BytesOf(to), HandleOf(stream));
  }
  Status Zero(const Stream& stream, const Tensor& out) override {
    return FillBytes(*context_, out.data, 0, BytesOf(out), HandleOf(stream));
  }

  Status Multiply(const Stream& stream, double factor, const Tensor& inout) override {
    return kernels_->Multiply(HandleOf(stream), As<float>(inout), factor, inout.count);
  }
  Status Compress(const Stream& stream, const ConstTensor& in, float divisor, float* residual,
                  const Tensor& out) override {
    const auto compress =
        out.dtype == DType::kFloat16 ? &CudaKernels::CompressToFloat16 : &CudaKernels::CompressToBFloat16;
    return (*kernels_.*compress)(HandleOf(stream), As<uint16_t>(out), As<float>(in), divisor, residual,
                                 in.count);
  }
  Status Decompress(const Stream& stream, const ConstTensor& in, const Tensor& out) override {
    const auto cast =
        in.dtype == DType::kFloat16 ? &CudaKernels::CastFromFloat16 : &CudaKernels::CastFromBFloat16;
    return (*kernels_.*cast)(HandleOf(stream), As<float>(out), As<uint16_t>(in), in.count);
  }
  StatusOr<double> Norm(const Stream& stream, std::span<const ConstTensor> tensors,
                        TimePoint deadline) override;

  Status AdamW(const Stream& stream, const AdamWScalars<float>& scalars, const ConstTensor& grads,
               const Tensor& params, float* m, float* v) override {
    return kernels_->AdamW(HandleOf(stream), As<float>(params), m, v, As<float>(grads), scalars,
                           params.count);
  }
  Status Sgd(const Stream& stream, const SgdScalars& scalars, const ConstTensor& grads, const Tensor& params,
             float* v) override {
    return kernels_->Sgd(HandleOf(stream), As<float>(params), v, As<float>(grads), scalars, params.count);
  }

 private:
  CudaArrayOps(std::shared_ptr<const CudaContext> context, std::shared_ptr<const CudaKernels> kernels,
               CudaStream stream, CudaEvent order, CudaEvent await)
      : context_(std::move(context)),
        kernels_(std::move(kernels)),
        stream_(std::move(stream)),
        order_(std::move(order)),
        await_(std::move(await)) {}

  const std::shared_ptr<const CudaContext> context_;
  const std::shared_ptr<const CudaKernels> kernels_;
  const CudaStream stream_;
  CudaEvent order_;  // recorded and waited for at once, so that each use may overwrite the last one
  CudaEvent await_;
  // For Norm: the sums of the blocks, and the open block's before and after each array by turns; on the device, and their
  // copy on the host. Allocated by the first call.
  int64_t max_sums_ = -1;
  std::shared_ptr<void> sums_, host_sums_;
};

// Each array continues the open block of the one before it; the host adds the blocks, as GlobalNorm does.
StatusOr<double> CudaArrayOps::Norm(const Stream& stream, std::span<const ConstTensor> tensors,
                                    TimePoint deadline) {
  constexpr int64_t kBlock = CudaKernels::kSumBlock, kOpen = CudaKernels::kOpenSums;
  int64_t total = 0;
  for (const ConstTensor& tensor : tensors) total += tensor.count;
  const int64_t num_sums = total / kBlock;
  const int64_t num_doubles = num_sums + 2 * kOpen;
  if (num_sums > max_sums_) {
    // One more, so that `sums` is memory also after the last complete block.
    DDPRUN_ASSIGN_OR_RETURN(sums_, Allocate((num_doubles + 1) * 8));
    DDPRUN_ASSIGN_OR_RETURN(host_sums_, AllocateOnHost(num_doubles * 8));
    max_sums_ = num_sums;
  }
  auto* const open = static_cast<double*>(sums_.get());
  auto* sums = open + 2 * kOpen;
  int64_t filled = 0;
  bool second = false;  // which of the two has the open block
  for (const ConstTensor& tensor : tensors) {
    if (tensor.count == 0) continue;
    double* const before = open + (second ? kOpen : 0);
    double* const after = open + (second ? 0 : kOpen);
    DDPRUN_RETURN_IF_ERROR(kernels_->SumOfSquares(HandleOf(stream), sums, after, before, filled,
                                                  As<float>(tensor), tensor.count));
    sums += (filled + tensor.count) / kBlock;
    filled = (filled + tensor.count) % kBlock;
    second = !second;
  }
  auto* const host = static_cast<double*>(host_sums_.get());
  DDPRUN_RETURN_IF_ERROR(CopyToHost(stream, {open, num_doubles, DType::kFloat64, device()}, host));
  DDPRUN_RETURN_IF_ERROR(Await(stream, deadline, "the norm of the gradients"));
  double norm = 0;
  for (int64_t b = 0; b < num_sums; ++b) norm += host[2 * kOpen + b];
  if (filled > 0) {
    const double* const lane = host + (second ? kOpen : 0);
    norm += ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
  return std::sqrt(norm);
}

}  // namespace

StatusOr<std::unique_ptr<ArrayOps>> internal::MakeCudaArrayOps(int index) {
  return CudaArrayOps::Open(index);
}

}  // namespace ddprun
