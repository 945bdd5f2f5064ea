#include "examples/train/model/model.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "examples/train/model/layers_variants.h"
#include "examples/train/model/tree_sum.h"
#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun::train {
namespace {

// Heads, width and context are odd, so that no loop ends with a full vector register.
constexpr ModelConfig kTiny{.layers = 2, .heads = 3, .width = 9, .context = 7};

std::vector<uint8_t> Sequence(int context, uint64_t seed = 5) {
  std::vector<uint8_t> sequence(context + 1);
  CounterRng rng(seed);
  for (uint8_t& byte : sequence) byte = static_cast<uint8_t>(rng.Next() % 11 * 23);  // some bytes repeat
  return sequence;
}

// Sets the parameters to values far from their initial values, so that no gain is one, no bias is zero and
// attention is not uniform.
template <typename T>
void Scatter(Gpt<T>& model) {
  CounterRng rng(1);
  for (T& p : model.parameters()) p = static_cast<T>(static_cast<float>(0.35 * rng.Normal()));
}

using Batch = std::vector<std::span<const uint8_t>>;

// Returns the losses of the sequences, and sets `grads`, if it is not null, to the gradient of their sum.
template <typename T>
std::vector<double> Compute(Gpt<T>& model, const Batch& batch, T scale, std::vector<T>* grads = nullptr) {
  std::vector<double> losses(batch.size());
  model.Forward(batch, scale, losses);
  if (grads == nullptr) return losses;
  // The initial values are arbitrary, because the backward pass must overwrite every gradient.
  grads->assign(model.parameters().size(), T(1e3));
  model.Backward([&](size_t i) { return grads->data() + model.tensors()[i].offset; }, [](size_t) {});
  return losses;
}

template <typename T>
std::vector<T> Gradient(Gpt<T>& model, std::span<const uint8_t> sequence, T scale) {
  std::vector<T> grads;
  Compute(model, {sequence}, scale, &grads);
  return grads;
}

// Returns the derivative of the loss with respect to each parameter, computed from values of the loss by
// fourth-order central differences in double.
std::vector<double> FiniteDifferences(Gpt<double>& model, std::span<const uint8_t> sequence, double scale) {
  constexpr double kStep = 2e-3;
  std::vector<double> grads;
  for (double& p : model.parameters()) {
    const double at = p;
    const auto loss = [&](double offset) {
      p = at + offset;
      return Compute(model, {sequence}, scale)[0];
    };
    grads.push_back((8 * (loss(kStep) - loss(-kStep)) - (loss(2 * kStep) - loss(-2 * kStep))) / (12 * kStep));
    p = at;
  }
  return grads;
}

// Returns |a - b| / |b| over one tensor.
template <typename T>
double RelativeError(const TensorSpec& tensor, const std::vector<T>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = tensor.offset; i < tensor.offset + tensor.num_elems; ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  EXPECT_GT(size, 0) << tensor.name << " has no gradient: the comparison is meaningless";
  return std::sqrt(difference / size);
}

TEST(GradientTest, EveryTensorMatchesFiniteDifferences) {
  const std::vector<uint8_t> sequence = Sequence(kTiny.context);
  const double scale = 1.0 / kTiny.context;
  Gpt<double> in_double(kTiny);
  Gpt<float> in_float(kTiny);
  Scatter(in_double);
  Scatter(in_float);
  const std::vector<double> expected = FiniteDifferences(in_double, sequence, scale);
  const std::vector<double> from_double = Gradient(in_double, sequence, scale);
  const std::vector<float> from_float = Gradient(in_float, sequence, static_cast<float>(scale));
  double worst_double = 0, worst_float = 0;
  for (const TensorSpec& tensor : in_double.tensors()) {
    const double error_double = RelativeError(tensor, from_double, expected);
    const double error_float = RelativeError(tensor, from_float, expected);
    EXPECT_LT(error_double, 1e-6) << tensor.name;
    EXPECT_LT(error_float, 1e-3) << tensor.name;
    worst_double = std::max(worst_double, error_double);
    worst_float = std::max(worst_float, error_float);
  }
  std::cout << "worst relative error of a tensor: " << worst_double << " in double, " << worst_float
            << " in float\n";
}

TEST(GradientTest, TensorsBecomeReadyInReverseOrderAndStayUnchanged) {
  Gpt<float> model(kTiny);
  Scatter(model);
  const std::vector<uint8_t> sequence = Sequence(kTiny.context);
  std::vector<float> grads(model.parameters().size()), when_ready(grads.size());
  std::vector<size_t> order;
  std::vector<double> losses(1);
  model.Forward(Batch{sequence}, 1, losses);
  const auto grad = [&](size_t i) { return grads.data() + model.tensors()[i].offset; };
  model.Backward(grad, [&](size_t i) {
    order.push_back(i);
    const TensorSpec& tensor = model.tensors()[i];
    std::copy_n(grads.begin() + tensor.offset, tensor.num_elems, when_ready.begin() + tensor.offset);
  });
  ASSERT_EQ(order.size(), model.tensors().size());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], order.size() - 1 - i);
  EXPECT_EQ(grads, when_ready);
}

// Checks that the losses of a batch are those of its sequences, and that its gradient is the sum of theirs in
// the order of tree_sum.h, bit for bit.
template <typename T>
void ExpectBatchEqualsSequences(const ModelConfig& config, const Layers<T>& layers, int batch_size) {
  SCOPED_TRACE(testing::Message() << layers.cpu() << ", batch " << batch_size << ", width " << config.width
                                  << ", context " << config.context);
  Gpt<T> one(config, 1, layers), all(config, batch_size, layers);
  Scatter(one);
  Scatter(all);
  std::vector<std::vector<uint8_t>> sequences;
  for (int b = 0; b < batch_size; ++b) sequences.push_back(Sequence(config.context, b));
  const Batch batch(sequences.begin(), sequences.end());
  std::vector<T> grads, expected;
  const std::vector<double> losses = Compute(all, batch, T(0.1), &grads);
  TreeSum<T> sum(one.parameters().size());
  sum.Begin();
  for (int b = 0; b < batch_size; ++b) {
    EXPECT_EQ(Compute(one, {batch[b]}, T(0.1), &expected)[0], losses[b]) << b;
    if (b + 1 == batch_size) break;
    sum.Add(expected, 0);
    sum.EndTerm();
  }
  sum.Finish(expected, 0);
  for (const TensorSpec& tensor : one.tensors()) {
    const auto begin = grads.begin() + tensor.offset;
    EXPECT_TRUE(std::equal(begin, begin + tensor.num_elems, expected.begin() + tensor.offset)) << tensor.name;
  }
}

template <typename T>
void ExpectBatchesEqualSequences(const Layers<T>& layers) {
  // Contexts and widths on both sides of the sizes of vectors, tiles, panels and blocks.
  const ModelConfig kConfigs[] = {kTiny,
                                  {.layers = 1, .heads = 2, .width = 16, .context = 16},
                                  {.layers = 1, .heads = 1, .width = 33, .context = 131},
                                  {.layers = 1, .heads = 2, .width = 70, .context = 18},  // 4 * 70 > 256
                                  {.layers = 1, .heads = 1, .width = 6, .context = 300}};
  for (const ModelConfig& config : kConfigs) {
    for (const int batch_size : {2, 3, 5, 8}) ExpectBatchEqualsSequences<T>(config, layers, batch_size);
  }
  ExpectBatchEqualsSequences<T>(kTiny, layers, 77);  // several groups of sequences
}

TEST(BatchTest, EqualsItsSequencesInFloat) {
  ExpectBatchesEqualSequences(BaselineLayers(float()));
  ExpectBatchesEqualSequences(LayersForThisCpu<float>());
}

TEST(BatchTest, EqualsItsSequencesInDouble) {
  ExpectBatchesEqualSequences(BaselineLayers(double()));
  ExpectBatchesEqualSequences(LayersForThisCpu<double>());
}

TEST(LayersTest, AttentionIsCausal) {
  constexpr int S = 6, C = 4, H = 2, kChanged = 3;
  std::vector<float> qkv(S * 3 * C), y(S * C), att(H * S * S);
  Scratch<float> scratch;
  CounterRng rng(2);
  for (float& x : qkv) x = static_cast<float>(rng.Normal());
  const auto attend = [&] {
    LayersForThisCpu<float>().AttentionForward(y.data(), att.data(), qkv.data(), scratch, 1, S, C, H);
    return y;
  };
  const std::vector<float> before = attend();
  for (int i = kChanged * 3 * C; i < S * 3 * C; ++i) qkv[i] += 1;
  const std::vector<float> after = attend();
  for (int i = 0; i < S * C; ++i) {
    if (i < kChanged * C) {
      EXPECT_EQ(before[i], after[i]) << i;
    } else {
      EXPECT_NE(before[i], after[i]) << i;
    }
  }
}

TEST(ModelTest, InitialParametersAreAFunctionOfTheSeed) {
  const auto start = [](uint64_t seed) {
    Gpt<float> model(kTiny);
    CounterRng rng(seed);
    model.Initialize(rng);
    return model;
  };
  Gpt<float> a = start(3), b = start(3), other = start(4);
  EXPECT_TRUE(std::ranges::equal(a.parameters(), b.parameters()));
  EXPECT_FALSE(std::ranges::equal(a.parameters(), other.parameters()));
  const std::vector<uint8_t> sequence = Sequence(kTiny.context);
  // The model is untrained, so the loss per byte is about the loss of a uniform guess.
  EXPECT_NEAR(Compute(a, {sequence}, 1.0f / kTiny.context)[0], std::log(kVocab), 0.05);
}

TEST(LayersTest, CpuVariantsAgreeAndAreDeterministic) {
  const std::vector<uint8_t> sequence = Sequence(kTiny.context);
  const auto gradient = [&](const Layers<float>& layers) {
    Gpt<float> model(kTiny, 1, layers);
    Scatter(model);
    return Gradient(model, sequence, 1.0f);
  };
  const std::vector<float> baseline = gradient(BaselineLayers(float()));
  EXPECT_EQ(baseline, gradient(BaselineLayers(float())));
  const std::vector<float> best = gradient(LayersForThisCpu<float>());
  EXPECT_EQ(best, gradient(LayersForThisCpu<float>()));
  const std::vector<double> reference(baseline.begin(), baseline.end());
  const Gpt<float> model(kTiny);
  for (const TensorSpec& tensor : model.tensors()) {
    EXPECT_LT(RelativeError(tensor, best, reference), 1e-4) << tensor.name;
  }
}

TEST(ModelConfigTest, ErrorsNameTheFlag) {
  const auto error = [](ModelConfig config) { return std::string(Validate(config).message()); };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.heads = 5}), "--heads=5 does not divide --width=64: each head gets an equal part");
  EXPECT_EQ(error({.layers = 0}), "--layers=0: must be from 1 to 1024");
  EXPECT_EQ(error({.width = -1}), "--width=-1: must be from 1 to 65536");
}

TEST(ModelConfigTest, TensorIndexMatchesTheList) {
  const std::vector<TensorSpec> tensors = ParameterTensors(kTiny);
  EXPECT_EQ(tensors[TensorIndex::InBlock(1, TensorIndex::kDownWeight)].name, "block1.mlp.down.weight");
  EXPECT_EQ(tensors[TensorIndex::InBlock(0, TensorIndex::kNorm1Gain)].name, "block0.norm1.gain");
  EXPECT_EQ(tensors[TensorIndex::FinalGain(2)].name, "final_norm.gain");
  EXPECT_EQ(tensors[TensorIndex::Head(2)].name, "head.weight");
  EXPECT_EQ(tensors.size(), TensorIndex::Head(2) + 1);
  for (size_t i = 1; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].offset, tensors[i - 1].offset + tensors[i - 1].num_elems);
  }
}

}  // namespace
}  // namespace ddprun::train
