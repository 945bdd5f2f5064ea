#include <cstddef>
#include <cstring>
#include <new>

#include "worker_sdk/comm/device_text.h"
#include "worker_sdk/comm/floating_point_mode.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/array_ops.h"
#include "worker_sdk/device/host/gradients.h"

namespace ddprun {
namespace {

constexpr std::align_val_t kAlignment{64};

size_t BytesOf(const ConstTensor& tensor) { return static_cast<size_t>(tensor.count * SizeOf(tensor.dtype)); }

void CopyBytes(const void* from, void* to, size_t num_bytes) {
  if (num_bytes > 0) std::memcpy(to, from, num_bytes);
}

class HostArrayOps final : public ArrayOps {
 public:
  Device device() const override { return {}; }
  Stream stream() const override { return {}; }

  Status CheckStream(const Stream& stream) const override {
    if (stream.device.type == DeviceType::kHost && stream.handle == nullptr) return OkStatus();
    return InvalidArgumentError(
        StrCat("the memory is on the host, but the stream is ", Describe(stream.device)));
  }
  Status Order(const Stream&, const Stream&) override { return OkStatus(); }
  Status Await(const Stream&, TimePoint, std::string_view) override { return OkStatus(); }

  StatusOr<std::shared_ptr<void>> Allocate(int64_t num_bytes) override {
    const auto size = static_cast<size_t>(num_bytes);
    void* const memory = ::operator new[](size, kAlignment, std::nothrow);
    if (memory == nullptr) return ResourceExhaustedError(StrCat("no memory for ", num_bytes, " bytes"));
    std::memset(memory, 0, size);
    return std::shared_ptr<void>(memory, [](void* p) { ::operator delete[](p, kAlignment); });
  }
  StatusOr<std::shared_ptr<void>> AllocateOnHost(int64_t num_bytes) override { return Allocate(num_bytes); }

  Status Copy(const Stream&, const ConstTensor& from, const Tensor& to) override {
    CopyBytes(from.data, to.data, BytesOf(from));
    return OkStatus();
  }
  Status CopyToHost(const Stream&, const ConstTensor& from, void* host) override {
    CopyBytes(from.data, host, BytesOf(from));
    return OkStatus();
  }
  Status CopyFromHost(const Stream&, const void* host, const Tensor& to) override {
    CopyBytes(host, to.data, BytesOf(to));
    return OkStatus();
  }
  Status Zero(const Stream&, const Tensor& out) override {
    if (out.count > 0) std::memset(out.data, 0, BytesOf(out));
    return OkStatus();
  }

  Status Multiply(const Stream&, double factor, const Tensor& inout) override {
    const DefaultFloatingPointMode mode;
    ddprun::Multiply(factor, inout);
    return OkStatus();
  }
  Status Compress(const Stream&, const ConstTensor& in, float divisor, float* residual,
                  const Tensor& out) override {
    const DefaultFloatingPointMode mode;
    ddprun::Compress(in, divisor, residual, out);
    return OkStatus();
  }
  Status Decompress(const Stream&, const ConstTensor& in, const Tensor& out) override {
    const DefaultFloatingPointMode mode;
    ddprun::Decompress(in, out);
    return OkStatus();
  }
  StatusOr<double> Norm(const Stream&, std::span<const ConstTensor> tensors, TimePoint) override {
    const DefaultFloatingPointMode mode;
    GlobalNorm norm;
    for (const ConstTensor& tensor : tensors) norm.Add(tensor);
    return norm.value();
  }

  Status AdamW(const Stream&, const AdamWScalars<float>& scalars, const ConstTensor& grads,
               const Tensor& params, float* m, float* v) override {
    const DefaultFloatingPointMode mode;
    const auto count = static_cast<size_t>(params.count);
    AdamWLoop<float>(scalars, {static_cast<const float*>(grads.data), count},
                     {static_cast<float*>(params.data), count}, {m, count}, {v, count});
    return OkStatus();
  }
  Status Sgd(const Stream&, const SgdScalars& scalars, const ConstTensor& grads, const Tensor& params,
             float* v) override {
    const DefaultFloatingPointMode mode;
    const auto count = static_cast<size_t>(params.count);
    SgdLoop(scalars, {static_cast<const float*>(grads.data), count},
            {static_cast<float*>(params.data), count}, {v, v == nullptr ? 0 : count});
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<ArrayOps> internal::MakeHostArrayOps() { return std::make_unique<HostArrayOps>(); }

StatusOr<std::unique_ptr<ArrayOps>> ArrayOps::Open(const Device& device) {
  if (device.type == DeviceType::kHost) return internal::MakeHostArrayOps();
  if (device.type == DeviceType::kCuda) return internal::MakeCudaArrayOps(device.index);
  return InvalidArgumentError(StrCat("memory ", Describe(device)));
}

}  // namespace ddprun
