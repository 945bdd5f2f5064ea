#include "net/poll_set.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "boost/asio/post.hpp"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

// A descriptor that Ring makes readable. The descriptor remains readable until Take is called.
class Bell : public PollSet::Handler {
 public:
  explicit Bell(PollSet& set) : set_(set) { EXPECT_TRUE(set_.Add(fd_, EPOLLIN, this).ok()); }
  virtual ~Bell() {
    Remove();
    ::close(fd_);
  }

  void Ring() { EXPECT_EQ(::eventfd_write(fd_, 1), 0); }
  void Take() {
    eventfd_t ignored;
    EXPECT_EQ(::eventfd_read(fd_, &ignored), 0);
  }
  void Remove() {
    if (in_) set_.Remove(fd_, this);
    in_ = false;
  }
  void Change(uint32_t events) { set_.Change(fd_, events, this); }

  std::function<void()> on_events;
  int calls = 0;

 private:
  void OnEvents(uint32_t /*events*/) override {
    ++calls;
    if (on_events) on_events();
  }

  PollSet& set_;
  const int fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  bool in_ = true;
};

class PollSetTest : public testing::Test {
 protected:
  boost::asio::io_context io_{1};
  PollSet& set_ = PollSet::Of(io_);
};

TEST_F(PollSetTest, KeepsTheIoContextRunningUntilEmpty) {
  io_.run();
  Bell bell(set_);
  bell.on_events = [&] { bell.Remove(); };
  bell.Ring();
  io_.restart();
  io_.run();  // returns because the set is empty
  EXPECT_EQ(bell.calls, 1);
}

TEST_F(PollSetTest, RemovalOutsideAHandlerLetsTheIoContextStop) {
  Bell bell(set_);
  boost::asio::post(io_, [&] { bell.Remove(); });
  io_.run();
  EXPECT_EQ(bell.calls, 0);
}

TEST_F(PollSetTest, ReportsAnEventUntilItIsConsumed) {
  Bell bell(set_);
  bell.Ring();
  bell.on_events = [&] {
    if (bell.calls == 100) bell.Remove();
  };
  io_.run();
  EXPECT_EQ(bell.calls, 100);
}

TEST_F(PollSetTest, ReportsAConsumedEventOnlyWhenItOccursAgain) {
  Bell bell(set_);
  bell.on_events = [&] {
    bell.Take();
    if (bell.calls == 2) return bell.Remove();
    boost::asio::post(io_, [&] { bell.Ring(); });
  };
  bell.Ring();
  io_.run();
  EXPECT_EQ(bell.calls, 2);
}

TEST_F(PollSetTest, RemovedHandlerGetsNoEventsOfTheSameBatch) {
  Bell a(set_), b(set_);
  // The handler that runs first removes both handlers, although the other descriptor is also ready.
  a.on_events = [&] { a.Remove(), b.Remove(); };
  b.on_events = a.on_events;
  a.Ring();
  b.Ring();
  io_.run();
  EXPECT_EQ(a.calls + b.calls, 1);
}

TEST_F(PollSetTest, HandlerMayDeleteItselfAndOthers) {
  std::vector<std::unique_ptr<Bell>> bells;
  int calls = 0;
  for (int i = 0; i < 10; ++i) {
    bells.push_back(std::make_unique<Bell>(set_));
    bells.back()->on_events = [&] {
      ++calls;
      // This call also destroys the running lambda, so no captures may be used after it.
      bells.clear();
    };
    bells.back()->Ring();
  }
  io_.run();
  EXPECT_EQ(calls, 1);
}

TEST_F(PollSetTest, BusySetDoesNotStarveOtherHandlers) {
  Bell busy(set_);
  busy.Ring();  // never consumed, so the descriptor stays ready
  boost::asio::post(io_,
                    [&] { boost::asio::post(io_, [&] { boost::asio::post(io_, [&] { busy.Remove(); }); }); });
  io_.run();
  EXPECT_LT(busy.calls, 1000);
}

TEST_F(PollSetTest, TurnWithSlowHandlersIsBounded) {
  Bell slow(set_);
  slow.Ring();
  slow.on_events = [] {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
         std::chrono::steady_clock::now() < end;) {
    }
  };
  boost::asio::post(io_,
                    [&] { boost::asio::post(io_, [&] { boost::asio::post(io_, [&] { slow.Remove(); }); }); });
  io_.run();
  EXPECT_LE(slow.calls, 4);
}

TEST_F(PollSetTest, ChangeReplacesTheEvents) {
  Bell bell(set_), other(set_);
  bell.Ring();
  bell.Change(0);
  other.on_events = [&] {
    other.Remove();
    EXPECT_EQ(bell.calls, 0);
    bell.Change(EPOLLIN);
  };
  other.Ring();
  bell.on_events = [&] { bell.Remove(); };
  io_.run();
  EXPECT_EQ(bell.calls, 1);
}

TEST_F(PollSetTest, RejectsAnInvalidDescriptor) {
  class : public PollSet::Handler {
    void OnEvents(uint32_t /*events*/) override {}
  } handler;
  EXPECT_EQ(set_.Add(-1, EPOLLIN, &handler).code(), absl::StatusCode::kResourceExhausted);
  io_.run();
}

}  // namespace
}  // namespace ddprun
