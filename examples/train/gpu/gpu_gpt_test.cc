// The model on a GPU against the model on the CPU. The stand-in computes the CPU's bits; a real GPU (tools/dev gpu) must be near
// the results in float64.
#include "examples/train/gpu/gpu_gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/testing/device_for_test.h"
#include "examples/train/model/model.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun::train {
namespace {

struct Case {
  ModelConfig config;
  std::vector<int> passes;  // sequences of each pass of a step
};

// The losses of a step, and the gradients of each pass.
template <typename T>
struct Results {
  std::vector<double> losses;
  std::vector<std::vector<T>> gradients;
  std::vector<size_t> ready;  // of the last pass
};

class GpuGptTest : public testing::Test {
 protected:
  void SetUp() override {
    StatusOr<std::unique_ptr<DeviceForTest>> device = DeviceForTest::Open();
    ASSERT_TRUE(device.ok() || DeviceForTest::MayBeMissing()) << device.status();
    if (!device.ok()) GTEST_SKIP() << "no GPU: " << device.status().message();
    device_ = *std::move(device);
  }

  // Not those of Initialize, whose gains and biases hide mistakes.
  static std::vector<double> ParametersFor(const ModelConfig& config) {
    CounterRng rng(5);
    std::vector<double> parameters(NumParameters(ParameterTensors(config)));
    for (double& p : parameters) p = static_cast<float>(0.2 * rng.Normal());
    return parameters;
  }

  static std::vector<std::vector<uint8_t>> TextFor(const Case& c) {
    CounterRng rng(6);
    std::vector<std::vector<uint8_t>> text;
    for (const int batch : c.passes) {
      for (int b = 0; b < batch; ++b) {
        std::vector<uint8_t>& sequence = text.emplace_back(c.config.context + 1);
        for (uint8_t& byte : sequence) byte = static_cast<uint8_t>(100 * rng.Normal());
      }
    }
    return text;
  }

  template <typename T>
  static Results<T> OnCpu(const Case& c) {
    Gpt<T> model(c.config, *std::max_element(c.passes.begin(), c.passes.end()));
    const std::vector<double> parameters = ParametersFor(c.config);
    std::copy(parameters.begin(), parameters.end(), model.parameters().begin());
    Results<T> results;
    size_t first = 0;
    for (const int batch : c.passes) {
      const Batch sequences = PassOf(c, first, batch);
      results.losses.resize(first + batch);
      model.Forward(sequences.views, 0.1f, std::span(results.losses).last(batch));
      std::vector<T>& gradients = results.gradients.emplace_back(parameters.size());
      results.ready.clear();
      model.Backward([&](size_t i) { return gradients.data() + model.tensors()[i].offset; },
                     [&](size_t i) { results.ready.push_back(i); });
      first += batch;
    }
    return results;
  }

  Results<float> OnGpu(const Case& c) {
    int sequences = 0;
    for (const int batch : c.passes) sequences += batch;
    auto gpt = GpuGpt::Create(device_->context(), OpenCublas().value(),
                              {c.config, *std::max_element(c.passes.begin(), c.passes.end()), sequences})
                   .value();
    const std::vector<double> parameters = ParametersFor(c.config);
    const std::vector<float> as_float(parameters.begin(), parameters.end());
    const PinnedMemory pinned =
        PinnedMemory::Allocate(device_->context(), as_float.size() * sizeof(float)).value();
    std::memcpy(pinned.data(), as_float.data(), as_float.size() * sizeof(float));
    EXPECT_EQ(CopyToDevice(*device_->context(), gpt->parameters(), pinned.data(), pinned.num_bytes(),
                           gpt->stream()),
              OkStatus());
    Results<float> results;
    size_t first = 0;
    std::vector<DeviceArray<float>> gradients;
    for (const int batch : c.passes) {
      const Batch pass = PassOf(c, first, batch);
      EXPECT_EQ(gpt->Forward(pass.views, 0.1f), OkStatus());
      gradients.push_back(DeviceArray<float>::Allocate(device_->context(), parameters.size()).value());
      float* const all = gradients.back().data();
      results.ready.clear();
      EXPECT_EQ(gpt->Backward([&](size_t i) { return all + gpt->tensors()[i].offset; },
                              [&](size_t i) { results.ready.push_back(i); }),
                OkStatus());
      first += batch;
    }
    const auto losses = gpt->Losses();
    EXPECT_TRUE(losses.ok()) << losses.status();
    results.losses.assign(losses->begin(), losses->end());
    for (const DeviceArray<float>& array : gradients)
      results.gradients.push_back(device_->Get(array.data(), parameters.size(), gpt->stream()));
    return results;
  }

  void Compare(const Case& c) {
    const Results<float> found = OnGpu(c), on_cpu = OnCpu<float>(c);
    EXPECT_EQ(found.ready.size(), on_cpu.ready.size());
    if (device_->is_stand_in()) {
      EXPECT_EQ(found.losses, on_cpu.losses);
      for (size_t p = 0; p < c.passes.size(); ++p) {
        for (const TensorSpec& tensor : ParameterTensors(c.config)) {
          const auto part = [&](const std::vector<float>& all) {
            return std::vector<float>(all.begin() + tensor.offset,
                                      all.begin() + tensor.offset + tensor.num_elems);
          };
          EXPECT_EQ(part(found.gradients[p]), part(on_cpu.gradients[p])) << tensor.name << ", pass " << p;
        }
      }
      return;
    }
    const Results<double> exact = OnCpu<double>(c);
    for (size_t i = 0; i < exact.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], exact.losses[i], 1e-5 * std::abs(exact.losses[i])) << i;
    for (size_t p = 0; p < c.passes.size(); ++p) {
      for (const TensorSpec& tensor : ParameterTensors(c.config)) {
        double error = 0, norm = 0;
        for (size_t i = tensor.offset; i < tensor.offset + tensor.num_elems; ++i) {
          error += std::pow(found.gradients[p][i] - exact.gradients[p][i], 2);
          norm += std::pow(exact.gradients[p][i], 2);
        }
        EXPECT_LT(std::sqrt(error), 1e-4 * std::sqrt(norm)) << tensor.name << ", pass " << p;
      }
    }
  }

  struct Batch {
    std::vector<std::vector<uint8_t>> text;
    std::vector<std::span<const uint8_t>> views;
  };
  static Batch PassOf(const Case& c, size_t first, int batch) {
    Batch pass;
    const auto text = TextFor(c);
    pass.text.assign(text.begin() + first, text.begin() + first + batch);
    pass.views.assign(pass.text.begin(), pass.text.end());
    return pass;
  }

  std::unique_ptr<DeviceForTest> device_;
};

TEST_F(GpuGptTest, OneSequence) { Compare({{.layers = 1, .heads = 1, .width = 4, .context = 3}, {1}}); }
TEST_F(GpuGptTest, SeveralSequences) {
  Compare({{.layers = 2, .heads = 3, .width = 18, .context = 13}, {5}});
}
TEST_F(GpuGptTest, SeveralPasses) {
  Compare({{.layers = 1, .heads = 2, .width = 12, .context = 7}, {4, 4, 1}});
}
TEST_F(GpuGptTest, LongChains) { Compare({{.layers = 1, .heads = 1, .width = 280, .context = 260}, {2}}); }

// On the stand-in, freeing memory that queued work uses is a mistake.
TEST_F(GpuGptTest, TheDestructorWaitsForTheWork) {
  const Case c{{.layers = 1, .heads = 2, .width = 12, .context = 7}, {2}};
  for (int i = 0; i < 5; ++i) {
    auto gpt = GpuGpt::Create(device_->context(), OpenCublas().value(), {c.config, 2, 2}).value();
    const Batch pass = PassOf(c, 0, 2);
    ASSERT_EQ(gpt->Forward(pass.views, 0.1f), OkStatus());
  }
}

// A second step of the same object computes what the first one does: nothing is left of it.
TEST_F(GpuGptTest, MemoryOfTheHostIsWrittenOnlyAfterItsCopy) {
  const Case c{{.layers = 1, .heads = 2, .width = 12, .context = 7}, {2}};
  const Results<float> expected = OnCpu<float>(c);
  auto gpt = GpuGpt::Create(device_->context(), OpenCublas().value(), {c.config, 2, 2}).value();
  const std::vector<double> parameters = ParametersFor(c.config);
  const PinnedMemory pinned =
      PinnedMemory::Allocate(device_->context(), parameters.size() * sizeof(float)).value();
  std::copy(parameters.begin(), parameters.end(), static_cast<float*>(pinned.data()));
  ASSERT_EQ(
      CopyToDevice(*device_->context(), gpt->parameters(), pinned.data(), pinned.num_bytes(), gpt->stream()),
      OkStatus());
  const std::vector<uint8_t> other(c.config.context + 1, 1);
  for (int step = 0; step < 20; ++step) {
    const Batch pass = PassOf(c, 0, 2);
    ASSERT_EQ(gpt->Forward(pass.views, 0.1f), OkStatus());
    const auto losses = gpt->Losses();
    ASSERT_TRUE(losses.ok()) << losses.status();
    for (int b = 0; b < 2; ++b)
      EXPECT_NEAR((*losses)[b], expected.losses[b], 1e-5 * expected.losses[b]) << step;
    const std::vector<std::span<const uint8_t>> others = {other, other};
    ASSERT_EQ(gpt->Forward(others, 0.1f), OkStatus());
    ASSERT_TRUE(gpt->Losses().ok());
  }
}

}  // namespace
}  // namespace ddprun::train
