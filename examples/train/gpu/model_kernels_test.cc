// The kernels of the model against the layers of the CPU. In two ways: their source, compiled for the CPU and launched through a
// table of fake driver functions; and as the driver has them, which is the stand-in in the ordinary tests, where the bits are equal,
// and a GPU in tools/dev gpu.
#include "examples/train/gpu/model_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/train/gpu/testing/device_for_test.h"
#include "examples/train/model/layers.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/device/cuda/testing/fake_cuda.h"
#include "worker_sdk/device/cuda/testing/host_cuda.h"

// After host_cuda.h, which defines what the kernels use.
#include "examples/train/gpu/kernels.cu"

namespace ddprun::train {
namespace {

using HostKernel = std::function<void(void** parameters)>;

// On 64 threads, which are fewer than some arrays have elements, and more than others have.
template <typename... Parameters>
HostKernel OnHost(void (*kernel)(Parameters...)) {
  return [kernel](void** parameters) {
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      LaunchOnHost(2, 32, kernel, *static_cast<Parameters*>(parameters[kIndex])...);
    }
    (std::index_sequence_for<Parameters...>());
  };
}

const std::map<std::string, HostKernel>& Kernels() {
  static const std::map<std::string, HostKernel> kernels = {
      {"SumTerms", OnHost(SumTerms)},
      {"AddTo", OnHost(AddTo)},
      {"AddBias", OnHost(AddBias)},
      {"BiasBackward", OnHost(BiasBackward)},
      {"EmbedForward", OnHost(EmbedForward)},
      {"EmbedTokensBackward", OnHost(EmbedTokensBackward)},
      {"NormForward", OnHost(NormForward)},
      {"NormBackwardInput", OnHost(NormBackwardInput)},
      {"NormBackwardParameters", OnHost(NormBackwardParameters)},
      {"CausalSoftmax", OnHost(CausalSoftmax)},
      {"CausalSoftmaxBackward", OnHost(CausalSoftmaxBackward)},
      {"GeluForward", OnHost(GeluForward)},
      {"GeluBackward", OnHost(GeluBackward)},
      {"CrossEntropyRows", OnHost(CrossEntropyRows)},
      {"SumLosses", OnHost(SumLosses)},
  };
  return kernels;
}

TEST(ModelKernelsImageTest, HasAllKernelsIfThereIsAToolkit) {
  const std::span<const unsigned char> image = ModelKernelsImage();
#ifdef DDPRUN_HAVE_CUDA
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  for (const auto& [name, kernel] : Kernels())
    EXPECT_NE(text.find(".text." + name), std::string_view::npos) << name;
#else
  EXPECT_TRUE(image.empty());
#endif
}

// Where the kernels run.
class Place {
 public:
  virtual ~Place() = default;
  virtual ModelKernels& kernels() = 0;
  virtual bool equal_bits() const = 0;  // to those of the CPU
  virtual float* Put(const std::vector<float>& values) = 0;
  virtual double* Put(const std::vector<double>& values) = 0;
  virtual uint8_t* Put(const std::vector<uint8_t>& values) = 0;
  virtual std::vector<float> Get(const float* at, int64_t count) = 0;
  virtual std::vector<double> Get(const double* at, int64_t count) = 0;
};

class Source final : public Place {
 public:
  Source() {
    cuda_.driver.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
      const auto found = Kernels().find(name);
      if (found == Kernels().end()) return CUDA_ERROR_NOT_FOUND;
      *function = reinterpret_cast<CUfunction>(const_cast<HostKernel*>(&found->second));
      return CUDA_SUCCESS;
    };
    cuda_.driver.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, CUstream, void** parameters, void**) {
      (*reinterpret_cast<HostKernel*>(function))(parameters);
      return CUDA_SUCCESS;
    };
    static constexpr unsigned char kImage[] = {1};
    kernels_ = ModelKernels::Load(CudaContext::Open(&cuda_.driver, 0).value(), nullptr, kImage).value();
  }

  ModelKernels& kernels() override { return *kernels_; }
  bool equal_bits() const override { return false; }
  float* Put(const std::vector<float>& values) override { return floats_.emplace_back(values).data(); }
  double* Put(const std::vector<double>& values) override { return doubles_.emplace_back(values).data(); }
  uint8_t* Put(const std::vector<uint8_t>& values) override { return bytes_.emplace_back(values).data(); }
  std::vector<float> Get(const float* at, int64_t count) override { return {at, at + count}; }
  std::vector<double> Get(const double* at, int64_t count) override { return {at, at + count}; }

 private:
  FakeCuda cuda_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<double>> doubles_;
  std::vector<std::vector<uint8_t>> bytes_;
  std::unique_ptr<ModelKernels> kernels_;
};

class OnDevice final : public Place {
 public:
  explicit OnDevice(std::unique_ptr<DeviceForTest> device)
      : device_(std::move(device)),
        kernels_(ModelKernels::Load(device_->context(), device_->stream()).value()) {}

  ModelKernels& kernels() override { return *kernels_; }
  bool equal_bits() const override { return device_->is_stand_in(); }
  float* Put(const std::vector<float>& values) override { return device_->Put(values); }
  double* Put(const std::vector<double>& values) override { return device_->Put(values); }
  uint8_t* Put(const std::vector<uint8_t>& values) override { return device_->Put(values); }
  std::vector<float> Get(const float* at, int64_t count) override {
    return device_->Get(at, count, device_->stream());
  }
  std::vector<double> Get(const double* at, int64_t count) override {
    return device_->Get(at, count, device_->stream());
  }

 private:
  const std::unique_ptr<DeviceForTest> device_;
  const std::unique_ptr<ModelKernels> kernels_;
};

// B sequences, S positions, C width, H heads, V vocabulary: no two are equal, and none is a multiple of eight.
constexpr int B = 3, S = 13, C = 18, H = 2, V = 27, N = B * S;

class ModelKernelsTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      place_ = std::make_unique<Source>();
      return;
    }
    StatusOr<std::unique_ptr<DeviceForTest>> device = DeviceForTest::Open();
    ASSERT_TRUE(device.ok() || DeviceForTest::MayBeMissing()) << device.status();
    if (!device.ok()) GTEST_SKIP() << "no GPU: " << device.status().message();
    place_ = std::make_unique<OnDevice>(*std::move(device));
  }

  std::vector<float> Random(int64_t count, double scale = 1) {
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(scale * rng_.Normal());
    return values;
  }
  std::vector<uint8_t> Bytes(int64_t count, int below) {
    std::vector<uint8_t> values(count);
    for (uint8_t& v : values) v = static_cast<uint8_t>(std::abs(rng_.Normal()) * 1000) % below;
    return values;
  }

  template <typename T>
  void Expect(const T* at, const std::vector<T>& expected, const std::string& what, bool exact = false) {
    const std::vector<T> found = place_->Get(at, static_cast<int64_t>(expected.size()));
    if (exact || place_->equal_bits()) {
      EXPECT_EQ(found, expected) << what;
      return;
    }
    T largest = 0;
    for (const T v : expected) largest = std::max(largest, std::abs(v));
    ASSERT_GT(largest, 0) << what;
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 3e-6 * largest) << what << " " << i;
  }

  ModelKernels& kernels() { return place_->kernels(); }
  const Layers<float>& cpu_ = LayersForThisCpu<float>();
  CounterRng rng_{7};
  Scratch<float> scratch_;
  std::unique_ptr<Place> place_;
};

TEST_P(ModelKernelsTest, SumTermsIsTheTree) {
  for (const int terms : {1, 2, 3, 7, 8, 37}) {
    const std::vector<float> values = Random(terms * C);
    std::vector<float> sums = values;  // as the layers add sequences
    for (int distance = 1; distance < terms; distance *= 2) {
      for (int t = 0; t + distance < terms; t += 2 * distance) {
        for (int c = 0; c < C; ++c) sums[t * C + c] += sums[(t + distance) * C + c];
      }
    }
    float* const out = place_->Put(Random(C));
    ASSERT_EQ(kernels().SumTerms(out, place_->Put(values), terms, C), OkStatus());
    sums.resize(C);
    Expect(out, sums, std::to_string(terms), /*exact=*/true);
  }
}

TEST_P(ModelKernelsTest, AddToAndAddBias) {
  const std::vector<float> y = Random(N * C), bias = Random(C), residual = Random(N * C);
  std::vector<float> sum = y, with_bias = y, with_both = y;
  for (int i = 0; i < N * C; ++i) {
    sum[i] += residual[i];
    with_bias[i] += bias[i % C];
    with_both[i] = with_bias[i] + residual[i];
  }
  float *const a = place_->Put(y), *const b = place_->Put(y), *const c = place_->Put(y);
  float *const d_bias = place_->Put(bias), *const d_residual = place_->Put(residual);
  ASSERT_EQ(kernels().AddTo(a, d_residual, N * C), OkStatus());
  ASSERT_EQ(kernels().AddBias(b, d_bias, nullptr, N, C), OkStatus());
  ASSERT_EQ(kernels().AddBias(c, d_bias, d_residual, N, C), OkStatus());
  Expect(a, sum, "AddTo", true);
  Expect(b, with_bias, "AddBias", true);
  Expect(c, with_both, "AddBias with a residual", true);
}

TEST_P(ModelKernelsTest, BiasBackward) {
  const std::vector<float> d_y = Random(N * C);
  std::vector<float> sums(B * C);
  for (int n = 0; n < N; ++n) {
    for (int c = 0; c < C; ++c) sums[n / S * C + c] += d_y[n * C + c];
  }
  float* const out = place_->Put(Random(B * C));
  ASSERT_EQ(kernels().BiasBackward(out, place_->Put(d_y), B, S, C), OkStatus());
  Expect(out, sums, "d_bias", true);
}

TEST_P(ModelKernelsTest, Embed) {
  const std::vector<uint8_t> tokens = Bytes(N, V);
  const std::vector<float> table = Random(V * C), positions = Random(S * C), d_x = Random(N * C);
  std::vector<float> x(N * C), d_table(V * C), d_positions(S * C), copy = d_x;
  cpu_.EmbedForward(x.data(), tokens.data(), table.data(), positions.data(), B, S, C);
  cpu_.EmbedBackward(d_table.data(), d_positions.data(), copy.data(), tokens.data(), scratch_, B, S, C, V);
  uint8_t* const d_tokens = place_->Put(tokens);
  float *const out = place_->Put(Random(N * C)), *const d_out = place_->Put(Random(V * C));
  float *const d_positions_out = place_->Put(Random(S * C)), *const d_in = place_->Put(d_x);
  ASSERT_EQ(kernels().EmbedForward(out, d_tokens, place_->Put(table), place_->Put(positions), N, S, C),
            OkStatus());
  ASSERT_EQ(kernels().EmbedTokensBackward(d_out, d_in, d_tokens, B, S, C, V), OkStatus());
  ASSERT_EQ(kernels().SumTerms(d_positions_out, d_in, B, S * C), OkStatus());
  Expect(out, x, "x", true);
  Expect(d_out, d_table, "d_token_table", true);
  Expect(d_positions_out, d_positions, "d_position_table", true);
}

TEST_P(ModelKernelsTest, Norm) {
  const std::vector<float> x = Random(N * C, 3), gain = Random(C), bias = Random(C), d_y = Random(N * C);
  std::vector<float> y(N * C), mean(N), rstd(N), d_x = Random(N * C), d_gain(C), d_bias(C);
  const std::vector<float> d_x_before = d_x;
  cpu_.NormForward(y.data(), mean.data(), rstd.data(), x.data(), gain.data(), bias.data(), N, C);
  cpu_.NormBackward(d_x.data(), d_gain.data(), d_bias.data(), d_y.data(), x.data(), mean.data(), rstd.data(),
                    gain.data(), scratch_, B, S, C);
  float *const in = place_->Put(x), *const d_out = place_->Put(d_y), *const gains = place_->Put(gain);
  float *const out = place_->Put(Random(N * C)), *const means = place_->Put(Random(N)),
               *const rstds = place_->Put(Random(N));
  ASSERT_EQ(kernels().NormForward(out, means, rstds, in, gains, place_->Put(bias), N, C), OkStatus());
  Expect(out, y, "y");
  Expect(means, mean, "mean");
  Expect(rstds, rstd, "rstd");

  float *const d_in = place_->Put(d_x_before), *const means_of_cpu = place_->Put(mean),
               *const rstds_of_cpu = place_->Put(rstd);
  float *const terms = place_->Put(Random(2 * B * C)), *const d_gains = place_->Put(Random(C)),
               *const d_biases = place_->Put(Random(C));
  ASSERT_EQ(kernels().NormBackwardInput(d_in, d_out, in, means_of_cpu, rstds_of_cpu, gains, N, C),
            OkStatus());
  ASSERT_EQ(
      kernels().NormBackwardParameters(terms, terms + B * C, d_out, in, means_of_cpu, rstds_of_cpu, B, S, C),
      OkStatus());
  ASSERT_EQ(kernels().SumTerms(d_gains, terms, B, C), OkStatus());
  ASSERT_EQ(kernels().SumTerms(d_biases, terms + B * C, B, C), OkStatus());
  Expect(d_in, d_x, "d_x");
  Expect(d_gains, d_gain, "d_gain");
  Expect(d_biases, d_bias, "d_bias");
}

TEST_P(ModelKernelsTest, CausalSoftmax) {
  constexpr float kScale = 0.3f;
  constexpr int kMatrices = B * H;
  std::vector<float> att = Random(kMatrices * S * S, 5), d_att = Random(kMatrices * S * S);
  float *const weights = place_->Put(att), *const d_weights = place_->Put(d_att);
  for (int m = 0; m < kMatrices; ++m) {
    float *const a = att.data() + m * S * S, *const d = d_att.data() + m * S * S;
    cpu_.CausalSoftmax(a, kScale, S);
    cpu_.CausalSoftmaxBackward(d, a, kScale, S);
    for (int s = 0; s < S; ++s) {  // above the diagonal, the layers leave other values
      std::fill(a + s * S + s + 1, a + (s + 1) * S, 0.0f);
      std::fill(d + s * S + s + 1, d + (s + 1) * S, 0.0f);
    }
  }
  ASSERT_EQ(kernels().CausalSoftmax(weights, kScale, kMatrices, S), OkStatus());
  Expect(weights, att, "att");
  ASSERT_EQ(kernels().CausalSoftmaxBackward(d_weights, place_->Put(att), kScale, kMatrices, S), OkStatus());
  Expect(d_weights, d_att, "d_att");
}

TEST_P(ModelKernelsTest, Gelu) {
  const std::vector<float> x = Random(N * C, 3);
  std::vector<float> y(N * C), d = Random(N * C);
  float *const in = place_->Put(x), *const out = place_->Put(Random(N * C)), *const d_out = place_->Put(d);
  cpu_.GeluForward(y.data(), x.data(), N * C);
  cpu_.GeluBackward(d.data(), x.data(), N * C);
  ASSERT_EQ(kernels().GeluForward(out, in, N * C), OkStatus());
  ASSERT_EQ(kernels().GeluBackward(d_out, in, N * C), OkStatus());
  Expect(out, y, "y");
  Expect(d_out, d, "d");
}

TEST_P(ModelKernelsTest, CrossEntropy) {
  constexpr float kScale = 0.01f;
  const std::vector<uint8_t> targets = Bytes(N, V);
  std::vector<float> logits = Random(N * V, 4);
  std::vector<double> losses(B);
  float* const on_place = place_->Put(logits);
  cpu_.CrossEntropy(losses.data(), logits.data(), targets.data(), kScale, B, S, V);
  double *const rows = place_->Put(std::vector<double>(N, -1)), *const out =
                                                                    place_->Put(std::vector<double>(B, -1));
  ASSERT_EQ(kernels().CrossEntropyRows(rows, on_place, place_->Put(targets), kScale, N, V), OkStatus());
  ASSERT_EQ(kernels().SumLosses(out, rows, kScale, B, S), OkStatus());
  Expect(on_place, logits, "d_logits");
  Expect(out, losses, "losses");
}

INSTANTIATE_TEST_SUITE_P(On, ModelKernelsTest, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Source" : "Device"; });

}  // namespace
}  // namespace ddprun::train
