// Tests that a GPU, which is the stand-in's, computes the bits of the host. Without a toolkit: that it says so.
#include "worker_sdk/device/array_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "worker_sdk/core/deadline.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr Device kGpu{DeviceType::kCuda, 0};

TEST(ArrayOpsTest, NamesWhatDoesNotExist) {
  EXPECT_EQ(ArrayOps::Open({DeviceType(7), 0}).status().message(),
            "memory on a device of the unknown type 7");
#ifdef DDPRUN_HAVE_CUDA
  EXPECT_THAT(ArrayOps::Open({DeviceType::kCuda, 99}).status().message(), HasSubstr("there is no GPU 99"));
#else
  EXPECT_EQ(ArrayOps::Open(kGpu).status().code(), StatusCode::kFailedPrecondition);
#endif
}

TEST(ArrayOpsTest, TheHostHasNoStreams) {
  const auto ops = *ArrayOps::Open({});
  EXPECT_EQ(ops->CheckStream({}), OkStatus());
  EXPECT_EQ(ops->CheckStream({kGpu, nullptr}).message(),
            "the memory is on the host, but the stream is on GPU 0");
  EXPECT_TRUE(ops->on_host());
}

TEST(ArrayOpsTest, MemoryOfTheHostIsAlignedAndZero) {
  const auto ops = *ArrayOps::Open({});
  const auto memory = *ops->Allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0);
  EXPECT_EQ(std::memcmp(memory.get(), std::vector<char>(1000).data(), 1000), 0);
  EXPECT_EQ(ops->Allocate(int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

#ifdef DDPRUN_HAVE_CUDA

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(rng.Normal() * std::pow(10, 2 * rng.Normal()));
  return values;
}

// Arrays on a device, which stay until this object is destroyed.
class Arrays {
 public:
  explicit Arrays(const Device& device) : ops(*ArrayOps::Open(device)) {}

  template <typename T>
  Tensor Put(const std::vector<T>& values, DType dtype = DTypeOf<T>()) {
    const auto num_bytes = static_cast<int64_t>(values.size() * sizeof(T));
    memory_.push_back(*ops->Allocate(num_bytes));
    const Tensor tensor{memory_.back().get(), static_cast<int64_t>(values.size()), dtype, ops->device()};
    memory_.push_back(*ops->AllocateOnHost(num_bytes));
    if (num_bytes > 0) std::memcpy(memory_.back().get(), values.data(), num_bytes);
    EXPECT_EQ(ops->CopyFromHost(stream(), memory_.back().get(), tensor), OkStatus());
    return tensor;
  }
  template <typename T = float>
  std::vector<T> Get(const ConstTensor& tensor) {
    const int64_t num_bytes = tensor.count * SizeOf(tensor.dtype);
    const auto host = *ops->AllocateOnHost(num_bytes);
    EXPECT_EQ(ops->CopyToHost(stream(), tensor, host.get()), OkStatus());
    EXPECT_EQ(ops->Await(stream(), DeadlineAfter(std::chrono::seconds(30)), "a copy"), OkStatus());
    std::vector<T> values(tensor.count);
    if (num_bytes > 0) std::memcpy(values.data(), host.get(), num_bytes);
    return values;
  }
  [[nodiscard]] Stream stream() const { return ops->stream(); }

  const std::unique_ptr<ArrayOps> ops;

 private:
  std::vector<std::shared_ptr<void>> memory_;
};

// Calls `compute` for the host and for a GPU, and expects equal bits.
void ExpectEqualBits(const std::function<std::vector<Tensor>(Arrays&)>& compute) {
  Arrays host({}), gpu(kGpu);
  const std::vector<Tensor> expected = compute(host), computed = compute(gpu);
  ASSERT_EQ(expected.size(), computed.size());
  for (size_t t = 0; t < expected.size(); ++t) {
    const auto bytes = [](Tensor tensor) {
      return ConstTensor(tensor.data, tensor.count * SizeOf(tensor.dtype), DType::kUInt8, tensor.device);
    };
    EXPECT_EQ(gpu.Get<uint8_t>(bytes(computed[t])), host.Get<uint8_t>(bytes(expected[t]))) << "tensor " << t;
  }
}

TEST(ArrayOpsTest, CopiesAndClears) {
  ExpectEqualBits([](Arrays& a) -> std::vector<Tensor> {
    const Tensor in = a.Put(RandomFloats(1000, 1)), copy = a.Put(std::vector<float>(1000, 7));
    const Tensor cleared = a.Put(RandomFloats(1000, 2));
    EXPECT_EQ(a.ops->Copy(a.stream(), in, copy), OkStatus());
    EXPECT_EQ(a.ops->Zero(a.stream(), cleared), OkStatus());
    return {copy, cleared};
  });
}

TEST(ArrayOpsTest, Multiplies) {
  ExpectEqualBits([](Arrays& a) -> std::vector<Tensor> {
    const Tensor values = a.Put(RandomFloats(1000, 1));
    EXPECT_EQ(a.ops->Multiply(a.stream(), 0.1, values), OkStatus());
    return {values};
  });
}

TEST(ArrayOpsTest, Compresses) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    ExpectEqualBits([dtype](Arrays& a) -> std::vector<Tensor> {
      const Tensor in = a.Put(RandomFloats(1000, 1)), residual = a.Put(RandomFloats(1000, 2));
      const Tensor plain = a.Put(std::vector<uint16_t>(1000), dtype),
                   fed_back = a.Put(std::vector<uint16_t>(1000), dtype);
      const Tensor again = a.Put(std::vector<float>(1000));
      EXPECT_EQ(a.ops->Compress(a.stream(), in, 3, nullptr, plain), OkStatus());
      EXPECT_EQ(a.ops->Compress(a.stream(), in, 3, static_cast<float*>(residual.data), fed_back), OkStatus());
      EXPECT_EQ(a.ops->Decompress(a.stream(), fed_back, again), OkStatus());
      return {plain, residual, fed_back, again};
    });
  }
}

TEST(ArrayOpsTest, Optimizes) {
  ExpectEqualBits([](Arrays& a) -> std::vector<Tensor> {
    const Tensor params = a.Put(RandomFloats(1000, 1)), grads = a.Put(RandomFloats(1000, 2));
    const Tensor m = a.Put(RandomFloats(1000, 3)), v = a.Put(std::vector<float>(1000, 2));
    const auto scalars = AdamWScalarsOf<float>({.weight_decay = 0.1}, 3);
    EXPECT_EQ(a.ops->AdamW(a.stream(), scalars, grads, params, static_cast<float*>(m.data),
                           static_cast<float*>(v.data)),
              OkStatus());
    const Tensor other = a.Put(RandomFloats(1000, 4));
    const SgdScalars sgd{.rate = 0.01f, .keep = 0.99f, .momentum = 0.9f};
    EXPECT_EQ(a.ops->Sgd(a.stream(), sgd, grads, other, nullptr), OkStatus());
    EXPECT_EQ(a.ops->Sgd(a.stream(), sgd, grads, other, static_cast<float*>(m.data)), OkStatus());
    return {params, m, v, other};
  });
}

TEST(ArrayOpsTest, TheNormIsThatOfTheHost) {
  Arrays host({}), gpu(kGpu);
  const auto norm = [](Arrays& a, const std::vector<int64_t>& sizes) {
    std::vector<ConstTensor> tensors;
    for (size_t i = 0; i < sizes.size(); ++i) tensors.emplace_back(a.Put(RandomFloats(sizes[i], i)));
    return *a.ops->Norm(a.stream(), tensors, DeadlineAfter(std::chrono::seconds(30)));
  };
  const std::vector<std::vector<int64_t>> kSizes = {
      {}, {0}, {5}, {4096}, {4096, 4096}, {1, 0, 4095, 3}, {20000, 7, 9000}, {100, 3996, 5}};
  for (const auto& sizes : kSizes) {
    EXPECT_EQ(std::bit_cast<uint64_t>(norm(gpu, sizes)), std::bit_cast<uint64_t>(norm(host, sizes)))
        << sizes.size() << " arrays";
  }
}

TEST(ArrayOpsTest, ChecksStreams) {
  const auto ops = *ArrayOps::Open(kGpu);
  EXPECT_EQ(ops->CheckStream(ops->stream()), OkStatus());
  EXPECT_EQ(ops->CheckStream({}).message(), "the memory is on GPU 0, but the stream is on the host");
  EXPECT_EQ(ops->CheckStream({kGpu, nullptr}).message(),
            "the memory is on GPU 0, but the stream has no handle: the default stream is not allowed");
}

TEST(ArrayOpsTest, OrdersStreams) {
  Arrays first(kGpu), second(kGpu);
  for (int i = 0; i < 20; ++i) {
    const Tensor values = first.Put(std::vector<float>(5000, 1));
    EXPECT_EQ(first.ops->Multiply(first.stream(), 3, values), OkStatus());
    EXPECT_EQ(second.ops->Order(first.stream(), second.stream()), OkStatus());
    EXPECT_EQ(second.Get(values), std::vector<float>(5000, 3));
  }
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
