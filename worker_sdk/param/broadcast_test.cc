#include "worker_sdk/param/broadcast.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "worker_sdk/comm/testing/rank_threads.h"

namespace ddprun {
namespace {

// Tensors of all the ways in which they are sent: with others, alone, in several messages, and more than are in flight.
class Tensors {
 public:
  explicit Tensors(int rank) {
    for (const int64_t count : {7, 0, 300'000, 1'000'000, 40'000'003}) {
      values_.emplace_back(count);
      for (int64_t i = 0; i < count; ++i) values_.back()[i] = Value(rank, i);
    }
  }
  [[nodiscard]] std::vector<Tensor> All() {
    std::vector<Tensor> all;
    for (std::vector<float>& values : values_) all.push_back(View(values));
    return all;
  }
  // Whether all values are those with which rank `rank` began.
  [[nodiscard]] bool AreThoseOf(int rank) const {
    for (const std::vector<float>& values : values_) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] != Value(rank, static_cast<int64_t>(i))) return false;
      }
    }
    return true;
  }

 private:
  static float Value(int rank, int64_t i) { return static_cast<float>(1000 * (rank + 1) + i % 97); }

  std::vector<std::vector<float>> values_;
};

TEST(BroadcastTensorsTest, RanksThatDoNotKeepThemAreUnchanged) {
  constexpr int kRoot = 1, kUnchanged = 2;
  WithRanks(4, [](Communicator& comm) {
    Tensors tensors(comm.rank());
    const bool keep = comm.rank() != kUnchanged;
    EXPECT_EQ(BroadcastTensors(comm, tensors.All(), kRoot, keep), OkStatus());
    EXPECT_TRUE(tensors.AreThoseOf(keep ? kRoot : kUnchanged)) << comm.rank();
  });
}

// After an error, no message uses the memory: it is freed at once here, which a sanitizer would notice.
TEST(BroadcastTensorsTest, ARankThatGivesUpEndsTheOthers) {
  WithRanks(3, [](Communicator& comm) {
    if (comm.rank() == 2) {
      comm.Abort("the test");
      return;
    }
    Tensors tensors(comm.rank());
    const Status status = BroadcastTensors(comm, tensors.All(), 0);
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
  });
}

}  // namespace
}  // namespace ddprun
