// Operations on arrays that are all in the memory of one device: what optimizers, broadcasts and the data-parallel step do
// with parameters, in the same code for the host and for GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "ddprun/time.h"
#include "worker_sdk/device/host/updates.h"

namespace ddprun {

// On the host, operations are done when they return, and streams are empty. On a GPU, they are put into `stream` and not
// waited for; their memory is used until the stream has done them.
//   Shapes:     tensors of one operation have the same number of elements, and overlap only where they are equal.
//   Result:     a GPU computes the bits of the host. Exception: the bits of NaNs.
//   REQUIRES:   the tensors are on device(); CheckStream(stream) is OK.
//   Errors:     of the host: none. Of a GPU: those of CudaStatus. An error of the work itself may be returned by any later call.
//   Threads:    one caller at a time for an object and the streams that it is given.
//   Destructor: waits for the work in stream(), at most 10 s, so that memory which that work uses can be freed afterwards.
class ArrayOps {
 public:
  // Blocks: the first object of a GPU loads the kernels.
  //   Errors: kFailedPrecondition: no driver, no kernels for this GPU; kInvalidArgument: no such GPU, or an unknown type.
  static StatusOr<std::unique_ptr<ArrayOps>> Open(const Device& device);
  virtual ~ArrayOps() = default;

  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] bool on_host() const { return device().type == DeviceType::kHost; }

  // A stream of this object, for work that follows no stream of the caller.
  [[nodiscard]] virtual Stream stream() const = 0;
  // Whether operations can be put into `stream`. On the host: it is empty. On a GPU: it is a stream of the primary context;
  // the default stream is none.
  //   Errors: kInvalidArgument.
  [[nodiscard]] virtual Status CheckStream(const Stream& stream) const = 0;
  // Work that is put into `later` from now on starts after the work that is in `earlier` now.
  virtual Status Order(const Stream& earlier, const Stream& later) = 0;
  // Blocks until the work that is in `stream` now is done.
  //   what:   for the error: "the update of the parameters".
  //   Errors: kDeadlineExceeded, and those of the work.
  virtual Status Await(const Stream& stream, TimePoint deadline, std::string_view what) = 0;

  // Memory of the device, or of the host for copies, aligned to 64 bytes. Zero. Blocks. It may outlive this object; it must
  // not be freed while work uses it.
  //   Errors: kResourceExhausted: the message has the size that is needed.
  virtual StatusOr<std::shared_ptr<void>> Allocate(int64_t num_bytes) = 0;
  virtual StatusOr<std::shared_ptr<void>> AllocateOnHost(int64_t num_bytes) = 0;

  virtual Status Copy(const Stream& stream, const ConstTensor& from, const Tensor& to) = 0;
  // `host`: memory of AllocateOnHost.
  virtual Status CopyToHost(const Stream& stream, const ConstTensor& from, void* host) = 0;
  virtual Status CopyFromHost(const Stream& stream, const void* host, const Tensor& to) = 0;
  virtual Status Zero(const Stream& stream, const Tensor& out) = 0;

  // Whether the functions below accept gradients of `dtype`: the host has them for all floating-point types, a GPU for float32.
  [[nodiscard]] bool Computes(DType dtype) const { return on_host() || dtype == DType::kFloat32; }
  // As the functions of worker_sdk/device/host/gradients.h.
  virtual Status Multiply(const Stream& stream, double factor, const Tensor& inout) = 0;
  virtual Status Compress(const Stream& stream, const ConstTensor& in, float divisor, float* residual,
                          const Tensor& out) = 0;
  virtual Status Decompress(const Stream& stream, const ConstTensor& in, const Tensor& out) = 0;
  // GlobalNorm of the tensors in this order. Blocks until the norm is known.
  virtual StatusOr<double> Norm(const Stream& stream, std::span<const ConstTensor> tensors,
                                TimePoint deadline) = 0;

  // As the functions of worker_sdk/device/host/updates.h, for float32. `v` of Sgd is null if there is no momentum.
  virtual Status AdamW(const Stream& stream, const AdamWScalars<float>& scalars, const ConstTensor& grads,
                       const Tensor& params, float* m, float* v) = 0;
  virtual Status Sgd(const Stream& stream, const SgdScalars& scalars, const ConstTensor& grads,
                     const Tensor& params, float* v) = 0;
};

namespace internal {
std::unique_ptr<ArrayOps> MakeHostArrayOps();
StatusOr<std::unique_ptr<ArrayOps>> MakeCudaArrayOps(int index);
}  // namespace internal

}  // namespace ddprun
