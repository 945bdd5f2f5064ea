#include "launcher/report/failure_origin.h"

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

const ExitInfo kExited = Exited{1};

bool FollowsAnother(const ExitInfo& exit, absl::string_view exception, absl::string_view stderr_tail) {
  return OriginOf(exit, std::nullopt, exception, stderr_tail) == FailureOrigin::kFollowsAnother;
}

// The messages are from surviving ranks, after a peer was killed, exited or hung, or the store's host failed.
TEST(FailureOriginTest, ErrorsAboutALostPeerFollowAnotherFailure) {
  for (
      const absl::string_view message : {
          "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:16276",
          "RuntimeError: [./gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:4310: Connection reset by "
          "peer",
          "RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv "
          "operation "
          "to complete",
          "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms",
          "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for "
          "send/recv from rank 0. Please check rank 0 logs for faulty rank.",
          "RuntimeError: Broken pipe",
          "RuntimeError: NCCL communicator was aborted on rank 2.  Original reason for failure was: [Rank 2] "
          "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=BROADCAST, "
          "Timeout(ms)=1800000) ran for 1805457 milliseconds before timing out.",
          "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, remote process "
          "exited or "
          "there was a network error, NCCL version 2.28.8",
          "train: rank 3 of round 7 is gone",
          "train: rank 12 of round 0 has left",
          "train: rank 0 of round 2 gave up operation 44, waiting for rank 3",
          "train: rank 0 of round 2 gave up message 3 from rank 1 to rank 0, waiting for the work in the "
          "stream before it",
          "train: rank 0 of round 2 gave up: its loss is not finite",
          "no answer from rank 2 of round 7 for 5 s: the network between node 0 (10.0.0.1) and node 1 "
          "(10.0.0.2) is cut or drops packets (cable, firewall, MTU)",
          "rank 1 of round 5 did not appear within 30000 ms (1 missing)",
          "train: the store at 10.0.0.7:29512 does not answer (the cause is elsewhere)",
      }) {
    EXPECT_TRUE(FollowsAnother(kExited, message, "")) << message;
    EXPECT_TRUE(FollowsAnother(kExited, "", absl::StrCat("step 3\n", message, "\n\n"))) << message;
    EXPECT_TRUE(FollowsAnother(Signaled{SIGABRT, true}, message, "")) << message;
  }
}

TEST(FailureOriginTest, UnrecognizedErrorsAreTheWorkersOwn) {
  for (const absl::string_view message :
       {"ValueError: bad batch",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "train: no space left on device", "rank 3 is gone", ""}) {
    EXPECT_FALSE(FollowsAnother(kExited, message, "")) << message;
    EXPECT_FALSE(FollowsAnother(kExited, "", message)) << message;
  }
}

TEST(FailureOriginTest, SearchesTheLastLinesOfStderrOnlyWithoutAnException) {
  const std::string reset = "warning: Connection reset by peer, trying again\n";
  EXPECT_FALSE(FollowsAnother(kExited, "ValueError: bad batch", reset));
  std::string tail = reset;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&tail, "step ", i, "\n");
  EXPECT_FALSE(FollowsAnother(kExited, "", tail));
  EXPECT_TRUE(FollowsAnother(kExited, "", reset + "step 1\n"));
}

TEST(FailureOriginTest, AFatalSignalNeverFollowsAnotherFailure) {
  const std::string gone = "rank 3 of round 7 is gone";
  for (const int signo : {SIGSEGV, SIGKILL, SIGBUS, SIGILL, SIGFPE, SIGTERM}) {
    EXPECT_FALSE(FollowsAnother(Signaled{signo, false}, gone, gone)) << signo;
  }
  EXPECT_FALSE(FollowsAnother(NeverStarted{absl::NotFoundError("no such file")}, "", gone));
  EXPECT_TRUE(FollowsAnother(Signaled{SIGPIPE, false}, "", ""))
      << "SIGPIPE means that a peer closed the connection";
}

TEST(FailureOriginTest, AWorkerThatObeyedASignalIsStopped) {
  for (const ExitInfo& exit :
       {ExitInfo(Signaled{SIGINT, false}), ExitInfo(Signaled{SIGTERM, false}), ExitInfo(Exited{128 + SIGINT}),
        ExitInfo(Exited{1}), ExitInfo(NeverStarted{absl::CancelledError("the node ends")})}) {
    EXPECT_EQ(OriginOf(exit, SIGINT, "", "rank 3 of round 7 is gone"), FailureOrigin::kStopped)
        << ToString(exit);
    EXPECT_NE(OriginOf(exit, std::nullopt, "", ""), FailureOrigin::kStopped) << ToString(exit);
  }
  for (const ExitInfo& exit : {ExitInfo(Signaled{SIGKILL, false}), ExitInfo(Signaled{SIGSEGV, true}),
                               ExitInfo(NeverStarted{absl::NotFoundError("no such file")})}) {
    EXPECT_EQ(OriginOf(exit, SIGTERM, "", ""), FailureOrigin::kOwn) << ToString(exit);
  }
  EXPECT_EQ(OriginOf(kExited, SIGTERM, "ValueError: bad batch", ""), FailureOrigin::kOwn);
  EXPECT_EQ(OriginOf(kExited, SIGTERM, "RuntimeError: Connection closed by peer", ""),
            FailureOrigin::kFollowsAnother);
}

}  // namespace
}  // namespace ddprun
