#include "worker_sdk/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(ContextTest, WithoutALauncherTheWorldSizeIsOne) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  auto context = Context::FromEnvironment();
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ((*context)->world_size(), 1);
  EXPECT_TRUE((*context)->is_first_rank());

  // Collectives need no store.
  auto comm = (*context)->Connect();
  ASSERT_TRUE(comm.ok()) << comm.status();
  std::vector<float> values = {1, 2};
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(10);
  EXPECT_EQ((*comm)->AllReduce(absl::MakeSpan(values), ReduceOp::kSum)->Wait(deadline), absl::OkStatus());
  EXPECT_EQ((*context)->store()->Set("key", "value").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ContextTest, NamesTheInvalidVariable) {
  setenv("RANK", "five", 1);
  setenv("WORLD_SIZE", "2", 1);
  const absl::Status status = Context::FromEnvironment().status();
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("RANK"));
}

TEST(ContextTest, RefusesToHostTheStore) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "4711", 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
  const absl::Status status = Context::FromEnvironment().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("TORCH_DISABLE_SHARE_RDZV_TCP_STORE"), std::string::npos) << status;
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
    unsetenv(name);
}

TEST(LocalAddressTowardsTest, LoopbackIsReachedFromLoopback) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1", 1).value_or("none"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("localhost", 1).value_or("none").substr(0, 3) == "127" ||
                LocalAddressTowards("localhost", 1).value_or("none") == "::1",
            true);
}

TEST(LocalAddressTowardsTest, NamesTheHostThatDoesNotResolve) {
  const absl::Status status = LocalAddressTowards("no.such.host.invalid", 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no.such.host.invalid"));
}

}  // namespace
}  // namespace ddprun
