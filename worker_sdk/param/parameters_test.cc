#include "worker_sdk/param/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Memory for parameters that are all of one type.
class Model {
 public:
  Parameter Add(std::string name, std::vector<int64_t> shape) {
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    memory_.push_back(std::make_unique<std::vector<float>>(count));
    return {std::move(name), std::move(shape), View(*memory_.back()), {}, true};
  }

 private:
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
};

// The messages of CompareParameters on all ranks, after `change` on rank `which`. The communicator must remain usable.
std::vector<std::string> Compare(int world, int which, int num_parameters,
                                 const std::function<void(std::vector<Parameter>&)>& change) {
  std::vector<std::string> messages(world);
  WithRanks(world, [&](Communicator& comm) {
    Model model;
    std::vector<Parameter> parameters;
    for (int i = 0; i < num_parameters; ++i) parameters.push_back(model.Add(StrCat("p", i), {2, 3}));
    if (comm.rank() == which) change(parameters);
    const Status status = CompareParameters(comm, parameters);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    messages[comm.rank()] = status.message();
    EXPECT_EQ(comm.Barrier().Wait(), OkStatus());
  });
  return messages;
}

std::vector<std::string> SameOnAll(int world, const std::string& text) { return {size_t(world), text}; }

TEST(CompareParametersTest, EqualParametersAreEqual) {
  for (const int world : {1, 2, 3, 5}) {
    WithRanks(world, [](Communicator& comm) {
      Model model;
      const std::vector<Parameter> parameters = {model.Add("a", {2, 3}), model.Add("empty", {0}),
                                                 model.Add("scalar", {})};
      EXPECT_EQ(CompareParameters(comm, parameters), OkStatus());
    });
  }
}

TEST(CompareParametersTest, TheFirstDifferenceIsNamedOnAllRanks) {
  // Only one of three ranks differs.
  EXPECT_EQ(Compare(3, 2, 4, [](auto& p) { p[1].name = "q"; }),
            SameOnAll(3, "the ranks differ: parameter 1 is p1 on rank 0 and is q on rank 2"));
  EXPECT_EQ(
      Compare(3, 1, 4,
              [](auto& p) {
                p[2].shape = {3, 2};
              }),
      SameOnAll(3,
                "the ranks differ: the shape of parameter p2 is [2, 3] on rank 0 and is [3, 2] on rank 1"));
  EXPECT_EQ(
      Compare(3, 0, 4, [](auto& p) { p[3].value.dtype = DType::kFloat16; }),
      SameOnAll(3,
                "the ranks differ: the dtype of parameter p3 is float16 on rank 0 and is float32 on rank 1"));
  EXPECT_EQ(
      Compare(3, 1, 4, [](auto& p) { p[0].decays = false; }),
      SameOnAll(3, "the ranks differ: whether parameter p0 decays is true on rank 0 and is false on rank 1"));
  EXPECT_EQ(Compare(3, 1, 4, [](auto& p) { p.pop_back(); }),
            SameOnAll(3, "the ranks differ: parameter 3 is p3 on rank 0 and does not exist on rank 1"));
  EXPECT_EQ(Compare(3, 0, 4, [](auto& p) { p.pop_back(); }),
            SameOnAll(3, "the ranks differ: parameter 3 does not exist on rank 0 and is p3 on rank 1"));
}

TEST(CompareParametersTest, OfSeveralDifferencesTheFirstIsNamed) {
  std::vector<std::string> messages(5);
  WithRanks(5, [&](Communicator& comm) {
    Model model;
    std::vector<Parameter> parameters;
    for (int i = 0; i < 9; ++i) parameters.push_back(model.Add(StrCat("p", i), {2}));
    if (comm.rank() > 0) parameters[8 - comm.rank()].name = "other";  // rank 4 differs first
    messages[comm.rank()] = CompareParameters(comm, parameters).message();
  });
  EXPECT_EQ(messages, SameOnAll(5, "the ranks differ: parameter 4 is p4 on rank 0 and is other on rank 4"));
}

TEST(CompareParametersTest, FindsADifferenceInALargeModel) {
  EXPECT_EQ(Compare(2, 1, 10000, [](auto& p) { p[9998].name = "q"; }),
            SameOnAll(2, "the ranks differ: parameter 9998 is p9998 on rank 0 and is q on rank 1"));
}

TEST(CompareParametersTest, InvalidParametersOfOneRankAreAnErrorOnAllRanks) {
  const auto fault = [](const std::function<void(std::vector<Parameter>&)>& change) {
    const std::vector<std::string> messages = Compare(3, 1, 3, change);
    EXPECT_EQ(messages, SameOnAll(3, messages[0]));
    return messages[0];
  };
  static float memory[12];
  EXPECT_EQ(fault([](auto& p) { p.clear(); }), "rank 1: the model has no parameters");
  EXPECT_EQ(fault([](auto& p) { p[2].name = "p0"; }), "rank 1: two parameters have the name p0");
  EXPECT_EQ(fault([](auto& p) { p[2].name = ""; }), "rank 1: parameter 2 has no name");
  EXPECT_EQ(fault([](auto& p) { p[2].name = "a/b"; }), "rank 1: parameter a/b: its name contains '/'");
  EXPECT_EQ(fault([](auto& p) { p[1].value.dtype = DType::kInt32; }),
            "rank 1: parameter p1: its dtype int32 is not a floating-point type");
  EXPECT_EQ(fault([](auto& p) { p[1].value.dtype = DType(99); }),
            "rank 1: parameter p1: its dtype unknown is not a floating-point type");
  EXPECT_EQ(fault([](auto& p) { p[1].value.data = nullptr; }),
            "rank 1: parameter p1: its value is a null pointer");
  EXPECT_EQ(fault([](auto& p) { p[1].value.count = 5; }),
            "rank 1: parameter p1: its value has 5 elements instead of 6");
  EXPECT_EQ(fault([](auto& p) {
              p[1].shape = {-2, -3};
            }),
            "rank 1: parameter p1: its shape [-2, -3] is invalid");
  EXPECT_THAT(fault([](auto& p) {
                p[1].shape = {int64_t{1} << 40, int64_t{1} << 40};
              }),
              HasSubstr("is invalid"));
  EXPECT_EQ(fault([](auto& p) { p[1].value.device.type = DeviceType(1); }),
            "rank 1: parameter p1: its value is on GPU 0 instead of on the host");
  EXPECT_EQ(fault([](auto& p) {
              p[1].gradient = {memory, 6, DType::kFloat32, {DeviceType::kCuda, 0}};
            }),
            "rank 1: parameter p1: its value is on the host, its gradient on GPU 0");
  EXPECT_EQ(fault([](auto& p) { p[1].value.data = reinterpret_cast<char*>(memory) + 1; }),
            "rank 1: parameter p1: its value is not aligned to the 4 bytes of a float32");
  EXPECT_EQ(fault([](auto& p) { p[2].value.data = p[1].value.data; }),
            "rank 1: the value of parameter p1 and the value of parameter p2 share memory");
  EXPECT_EQ(fault([](auto& p) {
              p[0].gradient = {memory, 6, DType::kFloat32};
              p[2].gradient = {memory + 5, 6, DType::kFloat32};
            }),
            "rank 1: the gradient of parameter p0 and the gradient of parameter p2 share memory");
  EXPECT_EQ(fault([](auto& p) { p[1].gradient = p[1].value; }),
            "rank 1: the value of parameter p1 and the gradient of parameter p1 share memory");
  EXPECT_EQ(fault([](auto& p) {
              p[1].gradient = {memory, 5, DType::kFloat32};
            }),
            "rank 1: parameter p1: its gradient has 5 elements instead of 6");
  EXPECT_EQ(fault([](auto& p) {
              p[1].gradient = {memory, 6, DType::kBFloat16};
            }),
            "rank 1: parameter p1: its value is float32, its gradient bfloat16");
}

TEST(CompareParametersTest, AShapeWithAZeroHasNoElements) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const Tensor none{nullptr, 0, DType::kFloat32};
  WithRanks(2, [&](Communicator& comm) {
    EXPECT_EQ(CompareParameters(comm, {{"a", {kHuge, 4, 0}, none, {}, true},
                                       {"b", {0, kHuge, 4}, none, {}, true},
                                       {"c", {kHuge, 0, 4}, none, {}, true}}),
              OkStatus());
    EXPECT_EQ(CompareParameters(comm, {{"p", {kHuge, -1, 0}, none, {}, true}}).code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(CompareParameters(comm, {{"p", {kHuge, 4}, none, {}, true}}).code(),
              StatusCode::kInvalidArgument);
  });
}

TEST(CompareParametersTest, AnEmptyCommunicatorIsAnError) {
  Model model;
  EXPECT_EQ(CompareParameters({}, {model.Add("p", {1})}).code(), StatusCode::kFailedPrecondition);
}

// Small tensors share messages, of which the sizes here need several; large tensors are sent by themselves.
TEST(BroadcastParametersTest, CopiesTheValuesOfAnyRank) {
  for (const int world : {1, 2, 3, 5}) {
    WithRanks(world, [&](Communicator& comm) {
      Model model;
      std::vector<Parameter> parameters = {model.Add("large", {700, 500}), model.Add("empty", {0, 7})};
      for (int i = 0; i < 12; ++i) parameters.push_back(model.Add(StrCat("p", i), {150000 + i}));
      for (int root = 0; root < world; ++root) {
        const auto value = [](int rank, size_t p, int64_t i) {
          return static_cast<float>(rank * 1000 + static_cast<int>(p) + static_cast<int>(i % 97));
        };
        for (size_t p = 0; p < parameters.size(); ++p) {
          float* values = static_cast<float*>(parameters[p].value.data);
          for (int64_t i = 0; i < parameters[p].value.count; ++i) values[i] = value(comm.rank(), p, i);
        }
        ASSERT_EQ(BroadcastParameters(comm, parameters, root), OkStatus());
        for (size_t p = 0; p < parameters.size(); ++p) {
          const float* values = static_cast<const float*>(parameters[p].value.data);
          for (int64_t i = 0; i < parameters[p].value.count; ++i) ASSERT_EQ(values[i], value(root, p, i));
        }
      }
    });
  }
}

TEST(BroadcastParametersTest, RefusesDifferentModelsAndRoots) {
  WithRanks(2, [](Communicator& comm) {
    std::vector<float> values = {static_cast<float>(comm.rank())};
    const std::vector<Parameter> parameters = {{comm.rank() == 0 ? "a" : "b", {1}, View(values), {}, true}};
    EXPECT_EQ(BroadcastParameters(comm, parameters, 0).message(),
              "broadcasting parameters: the ranks differ: parameter 0 is a on rank 0 and is b on rank 1");
    EXPECT_EQ(BroadcastParameters(comm, parameters, comm.rank()).message(),
              "broadcasting parameters: the ranks differ: the root is 0 on rank 0 and is 1 on rank 1");
    EXPECT_EQ(BroadcastParameters(comm, parameters, 2).message(),
              "broadcasting parameters: rank 0: rank 2 of 2 cannot be the root");
    EXPECT_THAT(values, ElementsAre(static_cast<float>(comm.rank())));
  });
}

}  // namespace
}  // namespace ddprun
