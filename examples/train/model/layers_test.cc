// Tests that results depend on the CPU variant, and not on the CPU model.

#include "examples/train/model/layers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "examples/train/model/buffer.h"
#include "examples/train/model/layers_variants.h"
#include "examples/train/model/pretend_caches.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun::train {
namespace {

using PretendCaches = void (*)(std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t);
using GetLayers = const Layers<float>& (*)(float);

// Returns a hash of the result of a linear layer, computed with cache sizes `l1` and `l2`. The layer is large
// enough that Eigen splits its sums.
uint64_t BitsWith(PretendCaches pretend, GetLayers layers, std::ptrdiff_t l1, std::ptrdiff_t l2) {
  constexpr int kRows = 64, kInputs = 2000, kOutputs = 48;
  int fds[2];
  if (pipe(fds) != 0) return 0;
  const pid_t child = fork();  // a new process, because the first use of the layers pins the cache sizes
  if (child == 0) {
    pretend(l1, l2, 4 * l2);
    CounterRng rng(1);
    Buffer<float> x(kRows * kInputs), weight(kOutputs * kInputs), y(kRows * kOutputs);
    for (Buffer<float>* each : {&x, &weight}) {
      for (float& element : each->span()) element = static_cast<float>(rng.Normal());
    }
    layers(0.0f).LinearForward(y.data(), x.data(), weight.data(), nullptr, kRows, kInputs, kOutputs);
    uint64_t hash = 0xcbf29ce484222325;
    const auto* bytes = reinterpret_cast<const unsigned char*>(y.data());
    for (size_t i = 0; i < kRows * kOutputs * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
    _exit(write(fds[1], &hash, sizeof hash) == sizeof hash ? 0 : 1);
  }
  uint64_t hash = 0;
  EXPECT_EQ(read(fds[0], &hash, sizeof hash), static_cast<ssize_t>(sizeof hash));
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(fds[0]);
  close(fds[1]);
  return hash;
}

void ExpectEqualBitsOnAllCpuModels(PretendCaches pretend, GetLayers layers) {
  const uint64_t usual = BitsWith(pretend, layers, 32 << 10, 256 << 10);
  EXPECT_EQ(BitsWith(pretend, layers, 16 << 10, 2 << 20), usual);
  EXPECT_EQ(BitsWith(pretend, layers, 48 << 10, 2 << 20), usual);
  EXPECT_EQ(BitsWith(pretend, layers, 64 << 10, 1 << 20), usual);
}

TEST(LayersTest, BitsDoNotDependOnCacheSizes) {
  ExpectEqualBitsOnAllCpuModels(&PretendBaselineCaches, &BaselineLayers);
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
  ExpectEqualBitsOnAllCpuModels(&PretendAvx2Caches, &Avx2Layers);
#endif
}

TEST(LayersTest, SelectsAVariantByName) {
  EXPECT_EQ(LayersFor<float>("baseline")->cpu(), "baseline");
  EXPECT_EQ(LayersFor<float>("auto")->cpu(), LayersForThisCpu<float>().cpu());
  EXPECT_EQ(LayersFor<double>("8086"), nullptr);
}

}  // namespace
}  // namespace ddprun::train
