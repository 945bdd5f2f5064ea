// Connects with a GPU, on the stand-in for CUDA and NCCL. Without a toolkit: the error says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ddprun/context.h"
#include "ddprun/status.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(ContextGpuTest, ConnectsWithTheGpuOfTheWorker) {
  StatusOr<Context> context = Context::FromEnvironment();
  ASSERT_TRUE(context.ok()) << context.status();
  StatusOr<Communicator> comm = context->Connect({.device = {DeviceType::kCuda, -1}});
#ifdef DDPRUN_HAVE_CUDA
  ASSERT_TRUE(comm.ok()) << comm.status();
  EXPECT_EQ(comm->device(), (Device{DeviceType::kCuda, 0}));
  const StatusOr<Buffer> buffer = comm->Allocate(DType::kFloat32, 5, comm->device());
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->tensor().device, comm->device());
  EXPECT_EQ(comm->Barrier().Wait(), OkStatus());
#else
  EXPECT_EQ(comm.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("without a CUDA toolkit"));
#endif
}

TEST(ContextGpuTest, NamesAGpuThatDoesNotExist) {
  StatusOr<Context> context = Context::FromEnvironment();
  ASSERT_TRUE(context.ok()) << context.status();
  const Status status = context->Connect({.device = {DeviceType::kCuda, 3}}).status();
  EXPECT_FALSE(status.ok());
#ifdef DDPRUN_HAVE_CUDA
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no GPU 3: this process sees 1"));
#endif
  EXPECT_THAT(std::string(context->Connect({.device = {DeviceType(7), 0}}).status().message()),
              HasSubstr("unknown type 7"));
}

}  // namespace
}  // namespace ddprun
