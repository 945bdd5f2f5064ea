#include "launcher/agent/background_task.h"

#include <future>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(BackgroundTaskTest, DeliversAResultInTime) {
  boost::asio::io_context io;
  std::optional<std::string> answer;
  ComputeInBackground<std::string>(
      io, seconds(60), [] { return std::string("node1.example"); },
      [&](std::optional<std::string> a) { answer = std::move(a); });
  EXPECT_FALSE(answer);  // `done` is not called within ComputeInBackground.
  io.run();
  EXPECT_EQ(answer, "node1.example");
}

TEST(BackgroundTaskTest, DoesNotWaitForALateResult) {
  std::promise<void> gate;
  auto opened = std::make_shared<std::shared_future<void>>(gate.get_future().share());
  int calls = 0;
  {
    boost::asio::io_context io;
    ComputeInBackground<int>(
        io, milliseconds(1),
        [opened] {
          opened->wait();
          return 1;
        },
        [&](std::optional<int> a) {
          ++calls;
          EXPECT_FALSE(a);
        });
    io.run();  // returns although the work has not finished
    EXPECT_EQ(calls, 1);
  }
  gate.set_value();
  EXPECT_EQ(calls, 1);
}

TEST(BackgroundTaskTest, WorkMayOutliveTheLoop) {
  std::promise<void> gate;
  auto opened = std::make_shared<std::shared_future<void>>(gate.get_future().share());
  auto ended = std::make_shared<std::promise<void>>();
  {
    boost::asio::io_context io;
    RunInBackground(
        io, seconds(60),
        [opened, ended] {
          opened->wait();
          ended->set_value();
        },
        [](bool) { FAIL() << "the handler was called before the work finished"; });
    io.poll();
  }
  gate.set_value();
  EXPECT_EQ(ended->get_future().wait_for(seconds(60)), std::future_status::ready);
}

}  // namespace
}  // namespace ddprun
