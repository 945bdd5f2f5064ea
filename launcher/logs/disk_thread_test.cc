#include "launcher/logs/disk_thread.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

constexpr seconds kPatience{20};

class DiskThreadTest : public testing::Test {
 protected:
  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    return done();
  }
  // Blocks `disk` until Thaw is called, like a stalled file system.
  void Freeze(DiskThread& disk, size_t bytes = 0) {
    disk.Do([thawed = thawed_] { thawed.wait(); }, nullptr, bytes);
  }
  void Thaw() { thaw_.set_value(); }

  boost::asio::io_context io_;
  std::promise<void> thaw_;
  const std::shared_future<void> thawed_ = thaw_.get_future().share();
};

TEST_F(DiskThreadTest, RunsJobsInOrderOnItsThreadAndCallbacksOnTheLoop) {
  DiskThread disk(io_);
  const auto loop_thread = std::this_thread::get_id();
  const auto order = std::make_shared<std::string>();
  std::string answers;
  for (const char c : {'a', 'b', 'c'}) {
    disk.Do(
        [order, c, loop_thread] {
          EXPECT_NE(std::this_thread::get_id(), loop_thread);
          *order += c;
        },
        [&answers, c, loop_thread] {
          EXPECT_EQ(std::this_thread::get_id(), loop_thread);
          answers += c;
        });
  }
  EXPECT_FALSE(disk.idle());
  ASSERT_TRUE(RunUntil([&] { return answers.size() == 3; }));
  EXPECT_EQ(*order, "abc");
  EXPECT_EQ(answers, "abc");
  EXPECT_TRUE(disk.idle());
}

TEST_F(DiskThreadTest, AStalledDiskDelaysNeitherTheLoopNorOtherDisks) {
  DiskThread frozen(io_), other(io_);
  Freeze(frozen);
  bool done = false;
  other.Do([] {}, [&] { done = true; });
  EXPECT_TRUE(RunUntil([&] { return done; }));
  EXPECT_FALSE(frozen.idle());
  Thaw();
  EXPECT_TRUE(RunUntil([&] { return frozen.idle(); }));
}

TEST_F(DiskThreadTest, AStalledDiskMayHoldMoreMemory) {
  DiskThread disk(io_);
  Freeze(disk, DiskThread::kMovingBytes - 1);
  EXPECT_FALSE(disk.full());
  disk.Do([] {}, nullptr, 1);
  EXPECT_TRUE(disk.full());
  bool room = false;
  disk.WhenRoom([&] { room = true; });
  io_.restart();
  io_.poll();
  EXPECT_FALSE(room);
  ASSERT_TRUE(RunUntil([&] { return room; })) << "a stalled disk must have room up to kMaxBytes";
  EXPECT_FALSE(disk.full());
  Thaw();
  EXPECT_TRUE(RunUntil([&] { return disk.idle(); }));
}

TEST_F(DiskThreadTest, IsFullAtItsLimitUntilJobsFinish) {
  DiskThread disk(io_);
  Freeze(disk, DiskThread::kMaxBytes);
  int room = 0;
  disk.WhenRoom([&] { ++room; });
  disk.WhenRoom([&] { ++room; });
  io_.restart();
  io_.run_for(2 * DiskThread::kStall);
  EXPECT_TRUE(disk.full());
  EXPECT_EQ(room, 0);
  Thaw();
  EXPECT_TRUE(RunUntil([&] { return room == 2; }));
  EXPECT_EQ(disk.bytes(), 0u);
}

TEST_F(DiskThreadTest, FinishReportsCompletionOrLackOfProgress) {
  DiskThread disk(io_);
  std::vector<bool> finished;
  const auto note = [&](bool all) { finished.push_back(all); };
  disk.Finish(kPatience, note);
  EXPECT_TRUE(RunUntil([&] { return finished.size() == 1; }));
  Freeze(disk);
  disk.Finish(milliseconds(20), note);
  EXPECT_TRUE(RunUntil([&] { return finished.size() == 2; }));
  disk.Finish(kPatience, note);
  Thaw();
  EXPECT_TRUE(RunUntil([&] { return finished.size() == 3; }));
  EXPECT_EQ(finished, (std::vector<bool>{true, false, true}));
}

TEST_F(DiskThreadTest, DestructorDoesNotWaitForTheDisk) {
  const auto ran = std::make_shared<std::promise<void>>();
  {
    DiskThread disk(io_);
    disk.Do([thawed = thawed_, ran] {
      thawed.wait();
      ran->set_value();
    });
    disk.Do([] { ADD_FAILURE() << "a job that has not started must be dropped"; });
    // Give the first job time to start.
    boost::asio::steady_timer wait(io_, milliseconds(50));
    wait.async_wait([](auto) {});
    io_.run_for(milliseconds(60));
  }
  Thaw();
  EXPECT_EQ(ran->get_future().wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace ddprun
