#include "ddprun/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/group.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FinishedOperation : public internal::Operation {
 public:
  explicit FinishedOperation(Status status)
      : Operation(std::chrono::seconds(1)), status_(std::move(status)) {}
  Status Wait(TimePoint) override { return status_; }
  bool Done() override { return true; }

 private:
  const Status status_;
};

// Records the calls and finishes them at once.
class FakeGroup : public internal::Group {
 public:
  FakeGroup(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status status() const override { return OkStatus(); }
  std::shared_ptr<internal::Operation> Start(const internal::Call& call, const void*, void*) override {
    started.push_back(Describe(call));
    return std::make_shared<FinishedOperation>(OkStatus());
  }
  Device device() const override { return gpu; }
  std::shared_ptr<internal::Operation> StartOnDevice(const internal::Call& call, const void*, void*,
                                                     const Stream& stream) override {
    started.push_back(Describe(call));
    streams.push_back(stream.handle);
    return std::make_shared<FinishedOperation>(OkStatus());
  }
  StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) override {
    return std::shared_ptr<void>(std::make_shared<std::vector<char>>(count * SizeOf(dtype)));
  }
  StatusOr<std::shared_ptr<void>> AllocateOnDevice(DType dtype, int64_t count) override {
    ++num_device_allocations;
    return Allocate(dtype, count);
  }
  StatusOr<std::shared_ptr<internal::Group>> Split(int color, int) override {
    if (color < 0) return std::shared_ptr<internal::Group>();
    return std::shared_ptr<internal::Group>(std::make_shared<FakeGroup>(0, 1));
  }
  std::shared_ptr<internal::Operation> Refuse(const internal::Call&, const Status& why) override {
    return std::make_shared<FinishedOperation>(why);
  }
  void Abort(std::string_view) override {}

  Device gpu;  // the host: none
  std::vector<std::string> started;
  std::vector<void*> streams;  // of the operations on `gpu`
  int num_device_allocations = 0;

 private:
  const int rank_, size_;
};

class CommunicatorTest : public testing::Test {
 protected:
  // The message of the error with which the operation was refused.
  static std::string Refused(Work work) {
    const Status status = work.Wait();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  }

  const std::shared_ptr<FakeGroup> group_ = std::make_shared<FakeGroup>(1, 3);
  Communicator comm_{group_};
  std::vector<float> six_ = std::vector<float>(6), two_ = std::vector<float>(2);
  std::vector<double> doubles_ = std::vector<double>(6);
  std::vector<int32_t> integers_ = std::vector<int32_t>(6);
};

TEST_F(CommunicatorTest, StartsOperationsWithTheirArguments) {
  std::vector<float> other(6);
  EXPECT_TRUE(comm_.AllReduce(View(six_), ReduceOp::kMean).Wait().ok());
  EXPECT_TRUE(comm_.Reduce(View(six_), View(other), ReduceOp::kMax, 1).Wait().ok());
  EXPECT_TRUE(comm_.Reduce(View(six_), {}, ReduceOp::kSum, 0).Wait().ok());  // no output: not the root
  EXPECT_TRUE(comm_.ReduceScatter(View(six_), View(two_), ReduceOp::kSum).Wait().ok());
  EXPECT_TRUE(comm_.AllGather(View(two_), View(six_)).Wait().ok());
  EXPECT_TRUE(comm_.AllToAll(View(six_), View(other)).Wait().ok());
  EXPECT_TRUE(comm_.Broadcast(View(integers_), 2).Wait().ok());
  EXPECT_TRUE(comm_.Barrier().Wait().ok());
  EXPECT_THAT(group_->started,
              ElementsAre("all-reduce (mean) of 6 float32", "reduce (max) of 6 float32 to rank 1",
                          "reduce (sum) of 6 float32 to rank 0", "reduce-scatter (sum) of 6 float32",
                          "all-gather of 2 float32", "all-to-all of 6 float32",
                          "broadcast of 6 int32 from rank 2", "barrier"));
}

TEST_F(CommunicatorTest, OperationsWithoutElementsStart) {
  EXPECT_TRUE(comm_.AllReduce(Tensor{}, ReduceOp::kSum).Wait().ok());
  EXPECT_TRUE(comm_.AllGather(ConstTensor{}, Tensor{}).Wait().ok());
  EXPECT_TRUE(comm_.Broadcast(Tensor{}, 0).Wait().ok());
}

TEST_F(CommunicatorTest, RefusesShapesThatDoNotFit) {
  std::vector<float> five(5), three(3);
  EXPECT_EQ(Refused(comm_.AllReduce(View(six_), View(five), ReduceOp::kSum)),
            "all-reduce: the input has 6 elements and the output 5: they must be in the ratio 1:1");
  EXPECT_EQ(Refused(comm_.ReduceScatter(View(six_), View(three), ReduceOp::kSum)),
            "reduce-scatter: the input has 6 elements and the output 3: they must be in the ratio 3:1");
  EXPECT_THAT(Refused(comm_.AllGather(View(two_), View(five))), HasSubstr("must be in the ratio 1:3"));
  EXPECT_THAT(Refused(comm_.AllToAll(View(five), View(six_))), HasSubstr("must be in the ratio 3:3"));
  EXPECT_THAT(group_->started, IsEmpty());
}

TEST_F(CommunicatorTest, RefusesTensorsThatAreInvalid) {
  const auto refused = [&](Tensor tensor) { return Refused(comm_.AllReduce(tensor, ReduceOp::kSum)); };
  EXPECT_EQ(refused({nullptr, 3, DType::kFloat32}), "all-reduce: the input is a null pointer to 3 elements");
  EXPECT_EQ(refused({six_.data(), -1, DType::kFloat32}), "all-reduce: the input has -1 elements");
  EXPECT_THAT(refused({six_.data(), int64_t{1} << 60, DType::kFloat32}),
              HasSubstr("1152921504606846976 elements"));
  EXPECT_THAT(refused({six_.data(), INT64_MAX, DType::kFloat64}),
              HasSubstr("has 9223372036854775807 elements"));
  EXPECT_EQ(refused({six_.data(), 1, DType(77)}), "all-reduce: the input has the unknown dtype 77");
  EXPECT_EQ(refused({reinterpret_cast<char*>(six_.data()) + 2, 1, DType::kFloat32}),
            "all-reduce: the input is not aligned to the 4 bytes of a float32");
  EXPECT_EQ(Refused(comm_.AllGather(View(two_), View(doubles_))),
            "all-gather: the input is float32, the output float64");
  EXPECT_THAT(group_->started, IsEmpty());
}

constexpr Device kGpu2 = {DeviceType::kCuda, 2};

TEST_F(CommunicatorTest, StartsOperationsOnItsGpu) {
  group_->gpu = kGpu2;
  EXPECT_EQ(comm_.device(), kGpu2);
  int queue = 0;
  const OpOptions on{.stream = {kGpu2, &queue}};
  Tensor six = View(six_), two = View(two_), other{six_.data() + 3, 3, DType::kFloat32, kGpu2};
  six.device = two.device = kGpu2;
  EXPECT_TRUE(comm_.AllReduce(six, ReduceOp::kSum, on).Wait().ok());
  EXPECT_TRUE(comm_.Reduce(six, six, ReduceOp::kSum, 1, on).Wait().ok());
  EXPECT_TRUE(comm_.ReduceScatter(six, two, ReduceOp::kSum, on).Wait().ok());
  EXPECT_TRUE(comm_.AllGather(two, six, on).Wait().ok());
  EXPECT_TRUE(comm_.AllToAll({six_.data(), 3, DType::kFloat32, kGpu2}, other, on).Wait().ok());
  EXPECT_TRUE(comm_.Broadcast(six, 0, on).Wait().ok());
  EXPECT_TRUE(comm_.Send(six, 0, on).Wait().ok());
  EXPECT_TRUE(comm_.Receive(six, 0, on).Wait().ok());
  EXPECT_EQ(group_->streams, std::vector<void*>(8, &queue));
  EXPECT_TRUE(comm_.AllReduce(View(six_), ReduceOp::kSum).Wait().ok()) << "host memory is accepted as well";
  EXPECT_EQ(group_->streams.size(), 8u);

  const StatusOr<Buffer> buffer = comm_.Allocate(DType::kFloat32, 5, kGpu2);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->tensor().device, kGpu2);
  EXPECT_TRUE(comm_.Allocate(DType::kFloat32, 5).ok());
  EXPECT_EQ(group_->num_device_allocations, 1);
}

TEST_F(CommunicatorTest, RefusesMemoryAndStreamsOfOtherDevices) {
  const Tensor on_gpu{six_.data(), 3, DType::kFloat32, kGpu2};
  int queue = 0;
  const OpOptions on{.stream = {kGpu2, &queue}};
  EXPECT_EQ(Refused(comm_.AllReduce(on_gpu, ReduceOp::kSum, on)),
            "all-reduce: the memory is on GPU 2, but the communicator accepts memory on the host: see "
            "ConnectOptions::device");
  EXPECT_EQ(comm_.Allocate(DType::kFloat32, 5, kGpu2).status().message(),
            "allocate: memory on GPU 2, but the communicator has memory on the host");
  group_->gpu = {DeviceType::kCuda, 1};
  EXPECT_EQ(
      Refused(comm_.Receive(on_gpu, 0, on)),
      "receive: the memory is on GPU 2, but the communicator accepts memory on the host or on GPU 1: see "
      "ConnectOptions::device");
  group_->gpu = kGpu2;
  EXPECT_EQ(Refused(comm_.AllReduce(on_gpu, ReduceOp::kSum)),
            "all-reduce: the memory is on GPU 2, but OpOptions::stream is on the host");
  EXPECT_EQ(Refused(comm_.AllReduce(View(six_), ReduceOp::kSum, on)),
            "all-reduce: the memory is on the host, so OpOptions::stream must be empty");
  EXPECT_EQ(Refused(comm_.AllReduce(on_gpu, View(two_), ReduceOp::kSum, on)),
            "all-reduce: the input is on GPU 2, the output on the host");
  EXPECT_EQ(
      Refused(comm_.AllReduce({six_.data(), 1, DType::kFloat32, {DeviceType(9), 0}}, ReduceOp::kSum)),
      "all-reduce: the memory is on a device of the unknown type 9, but the communicator accepts memory on "
      "the host or on GPU 2: see ConnectOptions::device");
  EXPECT_EQ(FinishedOperation(OkStatus()).WaitOn(on.stream).message(),
            "WaitOn: the operation's memory is on the host: use Wait");
  EXPECT_THAT(group_->started, IsEmpty());
}

TEST_F(CommunicatorTest, RefusesBuffersThatOverlap) {
  const Tensor shifted{six_.data() + 1, 3, DType::kFloat32};
  EXPECT_EQ(Refused(comm_.AllReduce({six_.data(), 3, DType::kFloat32}, shifted, ReduceOp::kSum)),
            "all-reduce: the input and the output overlap");
  EXPECT_THAT(Refused(comm_.AllToAll(View(six_), View(six_))), HasSubstr("overlap"));
  EXPECT_THAT(Refused(comm_.AllGather({six_.data() + 1, 2, DType::kFloat32}, View(six_))),
              HasSubstr("overlap"));
  // In place: a part of the other buffer, but not that of this rank, 1.
  EXPECT_THAT(Refused(comm_.ReduceScatter(View(six_), {six_.data(), 2, DType::kFloat32}, ReduceOp::kSum)),
              HasSubstr("overlap"));
  EXPECT_TRUE(
      comm_.ReduceScatter(View(six_), {six_.data() + 2, 2, DType::kFloat32}, ReduceOp::kSum).Wait().ok());
  EXPECT_TRUE(comm_.AllGather({six_.data() + 2, 2, DType::kFloat32}, View(six_)).Wait().ok());
  const Tensor after{six_.data() + 3, 3, DType::kFloat32};
  EXPECT_TRUE(comm_.AllReduce({six_.data(), 3, DType::kFloat32}, after, ReduceOp::kSum).Wait().ok());
}

TEST_F(CommunicatorTest, RefusesReductionsAndRootsThatDoNotExist) {
  EXPECT_EQ(Refused(comm_.AllReduce(View(integers_), ReduceOp::kMean)),
            "all-reduce: a mean of int32 is not defined");
  EXPECT_EQ(Refused(comm_.AllReduce(View(six_), ReduceOp(9))), "all-reduce: the unknown reduction 9");
  EXPECT_EQ(Refused(comm_.Broadcast(View(six_), 3)), "broadcast: rank 3 of 3 cannot be the root");
  EXPECT_EQ(Refused(comm_.Reduce(View(six_), {}, ReduceOp::kSum, -1)),
            "reduce: rank -1 of 3 cannot be the root");
}

TEST(EmptyCommunicatorTest, OperationsFail) {
  Communicator empty;
  std::vector<float> values(3);
  EXPECT_EQ(empty.rank(), -1);
  EXPECT_EQ(empty.size(), 0);
  EXPECT_EQ(empty.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(empty.AllReduce(View(values), ReduceOp::kSum).Wait().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(empty.AllGather(View(values), View(values)).Wait().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(empty.Barrier().Wait().code(), StatusCode::kFailedPrecondition);
  empty.Abort("nothing happens");
  Work none;
  EXPECT_TRUE(none.Done());
  EXPECT_EQ(none.Wait(TimePoint::max()).code(), StatusCode::kFailedPrecondition);
}

TEST(CommunicatorHandleTest, CopiesShareTheGroup) {
  const auto group = std::make_shared<FakeGroup>(0, 1);
  Communicator a(group), b = a;
  std::vector<double> values(1);
  EXPECT_TRUE(b.AllReduce(View(values), ReduceOp::kSum).Wait().ok());
  EXPECT_EQ(group->started.size(), 1);
  EXPECT_EQ(group.use_count(), 3);
}

TEST(CommunicatorSplitTest, ARankWithoutAColorGetsAnEmptyCommunicator) {
  Communicator comm(std::make_shared<FakeGroup>(1, 4));
  const StatusOr<Communicator> none = comm.Split(Communicator::kNoColor);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->size(), 0);
  const StatusOr<Communicator> alone = comm.Split(7);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->size(), 1);
}

TEST(CommunicatorAllocateTest, ChecksItsArguments) {
  Communicator comm(std::make_shared<FakeGroup>(0, 2));
  EXPECT_EQ(comm.Allocate(DType::kFloat32, -1).status(), InvalidArgumentError("allocate: -1 elements"));
  EXPECT_EQ(comm.Allocate(DType::kFloat32, INT64_MAX / 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(comm.Allocate(DType(99), 1).status(), InvalidArgumentError("allocate: the unknown dtype 99"));
  EXPECT_EQ(Communicator().Allocate(DType::kFloat32, 1).status().code(), StatusCode::kFailedPrecondition);
}

TEST(CommunicatorAllocateTest, AMovedBufferHasNoElements) {
  Communicator comm(std::make_shared<FakeGroup>(0, 2));
  StatusOr<Buffer> buffer = comm.Allocate(DType::kInt32, 3);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->tensor().count, 3);
  EXPECT_EQ(buffer->tensor().dtype, DType::kInt32);
  const Buffer other = *std::move(buffer);
  EXPECT_EQ(other.tensor().count, 3);
  EXPECT_EQ(buffer->tensor().count, 0);  // NOLINT: what is tested
  EXPECT_EQ(buffer->tensor().data, nullptr);
}

TEST(CommunicatorSplitTest, AnEmptyCommunicatorCannotBeSplit) {
  EXPECT_EQ(Communicator().Split(0).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ddprun
