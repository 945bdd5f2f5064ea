#include "ddprun/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/context_state.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(ContextTest, WithoutALauncherTheWorldSizeIsOne) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  auto context = Context::FromEnvironment();
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ(context->world_size(), 1);
  EXPECT_EQ(context->rank(), 0);
  context->Report(1);  // without an agent, does nothing
  EXPECT_FALSE(context->snapshot_requested());

  // The collectives work without a store.
  auto comm = context->Connect();
  ASSERT_TRUE(comm.ok()) << comm.status();
  std::vector<float> values = {1, 2};
  const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  EXPECT_EQ(comm->AllReduce(View(values), ReduceOp::kSum).Wait(deadline), OkStatus());
  EXPECT_EQ(internal::ContextState::Of(*context).store().Set("key", "value").code(),
            StatusCode::kFailedPrecondition);
}

TEST(ContextTest, NamesTheInvalidVariable) {
  setenv("RANK", "five", 1);
  setenv("WORLD_SIZE", "2", 1);
  const Status status = Context::FromEnvironment().status();
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("RANK"));
}

TEST(ContextTest, RefusesToHostTheStore) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "4711", 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
  const Status status = Context::FromEnvironment().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("TORCH_DISABLE_SHARE_RDZV_TCP_STORE"), std::string::npos) << status;
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
    unsetenv(name);
}

}  // namespace
}  // namespace ddprun
