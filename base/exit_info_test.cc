#include "base/exit_info.h"

#include <csignal>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

// Linux encodes the exit code in the second byte, the signal in the low seven bits, and a core dump in the
// bit 0x80.
TEST(ExitInfoTest, DecodesWaitStatus) {
  EXPECT_EQ(ExitInfoFromWaitStatus(0), ExitInfo(Exited{0}));
  EXPECT_EQ(ExitInfoFromWaitStatus(255 << 8), ExitInfo(Exited{255}));
  EXPECT_EQ(ExitInfoFromWaitStatus(SIGKILL), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_EQ(ExitInfoFromWaitStatus(SIGSEGV | 0x80), ExitInfo(Signaled{SIGSEGV, true}));
}

TEST(ExitInfoTest, OnlyExitCodeZeroIsSuccess) {
  EXPECT_TRUE(Succeeded(Exited{0}));
  EXPECT_FALSE(Succeeded(Exited{1}));
  EXPECT_FALSE(Succeeded(Signaled{SIGTERM, false}));
  EXPECT_FALSE(Succeeded(NeverStarted{absl::NotFoundError("x")}));
  EXPECT_FALSE(Succeeded(Stuck{"in state D"}));
}

TEST(ExitInfoTest, ExitCodeIsNotASignal) {
  EXPECT_TRUE(EndedBySignal(Signaled{SIGKILL, true}, SIGKILL));
  EXPECT_FALSE(EndedBySignal(Signaled{SIGTERM, false}, SIGKILL));
  EXPECT_FALSE(EndedBySignal(Exited{SIGKILL}, SIGKILL));
  EXPECT_FALSE(EndedBySignal(Stuck{"in state D"}, SIGKILL));
}

TEST(ExitInfoTest, TorchExitCodeMatchesTorchrun) {
  EXPECT_EQ(TorchExitCode(Exited{3}), 3);
  EXPECT_EQ(TorchExitCode(Signaled{SIGKILL, false}), -9);
  EXPECT_EQ(TorchExitCode(NeverStarted{absl::NotFoundError("x")}), 1);
  EXPECT_EQ(TorchExitCode(Stuck{"in state D"}), 1);
}

TEST(ExitInfoTest, ToStringStatesHowTheWorkerEnded) {
  EXPECT_EQ(ToString(Exited{3}), "exit code 3");
  EXPECT_EQ(ToString(Signaled{SIGSEGV, true}), "SIGSEGV (core dumped)");
  EXPECT_EQ(ToString(NeverStarted{absl::NotFoundError("no such file")}), "never started: no such file");
  EXPECT_EQ(ToString(Stuck{"in state D"}), "stuck in state D");
}

TEST(ExitInfoTest, SignalBehindAnExit) {
  EXPECT_EQ(SignalBehind(Signaled{SIGUSR1}), SIGUSR1);
  EXPECT_EQ(SignalBehind(Exited{128 + SIGUSR1}), SIGUSR1);
  for (const int code : {0, 1, 128, 255}) EXPECT_EQ(SignalBehind(Exited{code}), std::nullopt) << code;
  EXPECT_EQ(SignalBehind(Stuck{"in state D"}), std::nullopt);
}

TEST(ExitInfoTest, SignalNameFallsBackToTheNumber) {
  EXPECT_EQ(SignalName(SIGRTMIN + 3), "SIGRTMIN+3");
  EXPECT_EQ(SignalName(0), "signal 0");
  EXPECT_EQ(SignalName(-1), "signal -1");
  const std::pair<int, std::string> kNames[] = {
      {SIGHUP, "SIGHUP"},       {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
      {SIGTERM, "SIGTERM"},     {SIGCHLD, "SIGCHLD"}, {SIGXCPU, "SIGXCPU"},
      {SIGVTALRM, "SIGVTALRM"}, {SIGPOLL, "SIGPOLL"}, {SIGSYS, "SIGSYS"}};
  for (const auto& [signo, name] : kNames) EXPECT_EQ(SignalName(signo), name);
}

}  // namespace
}  // namespace ddprun
