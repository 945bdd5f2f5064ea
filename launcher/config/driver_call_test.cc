#include "launcher/config/driver_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/event.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriverCallTest : public testing::Test {
 protected:
  absl::StatusOr<int> Ask(const std::function<absl::StatusOr<int>()>& work, const DriverLimits& limits = {}) {
    return AskDriver<int>(
        work, [this](absl::string_view text) { said_.emplace_back(text); }, limits);
  }
  absl::StatusOr<int> AskInVain(const DriverLimits& limits) {
    return Ask(
        [gate = gate_]() -> absl::StatusOr<int> {
          gate->Wait();
          return 0;
        },
        limits);
  }
  // Lets the call return, and waits until its thread is out of it.
  void Release() {
    gate_->Set();
    while (InDriverCall()) {
    }
  }

  std::shared_ptr<Event> gate_ = std::make_shared<Event>();  // what the call waits for
  std::vector<std::string> said_;
};

TEST_F(DriverCallTest, ReturnsTheResult) {
  EXPECT_EQ(*Ask([] { return 7; }), 7);
  EXPECT_EQ(Ask([]() -> absl::StatusOr<int> { return absl::FailedPreconditionError("none"); }).status(),
            absl::FailedPreconditionError("none"));
  EXPECT_TRUE(said_.empty());
}

TEST_F(DriverCallTest, ALibraryThatDoesNotAnswerIsReported) {
  const absl::StatusOr<int> result = AskInVain({.slow = milliseconds(1), .total = milliseconds(120)});
  EXPECT_EQ(result.status(),
            absl::DeadlineExceededError("NVIDIA's driver library has not answered within 120 ms: check with "
                                        "nvidia-smi whether a GPU is broken"));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("NVIDIA's driver library has not answered within 1 ms")));
  EXPECT_TRUE(InDriverCall());
  Release();
}

TEST_F(DriverCallTest, ABlockedSignalEndsTheWait) {
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) {
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, signo);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    kill(getpid(), signo);
    EXPECT_EQ(AskInVain({}).status().code(), absl::StatusCode::kCancelled) << signo;
    EXPECT_EQ(sigwaitinfo(&blocked, nullptr), signo) << "it is left for the event loop";
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  Release();
}

TEST_F(DriverCallTest, AnIgnoredSignalDoesNotEndTheWait) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGHUP);
  signal(SIGHUP, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  kill(getpid(), SIGHUP);
  EXPECT_EQ(AskInVain({.total = milliseconds(60)}).status().code(), absl::StatusCode::kDeadlineExceeded);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGHUP, SIG_DFL);
  Release();
}

}  // namespace
}  // namespace ddprun
