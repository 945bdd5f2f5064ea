#include "launcher/workers/node_failures.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/value_codec.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kTraceback[] =
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nValueError: bad batch\n";

class NodeFailuresTest : public ::testing::Test {
 protected:
  NodeFailuresTest() { failures_.BeginRound({.round = Round(2), .first_rank = Rank(4)}); }

  static TimePoint At(int ms) { return TimePoint(seconds(100) + milliseconds(ms)); }
  void Add(int local_rank, ExitInfo exit, std::optional<int> last_signal = std::nullopt) {
    failures_.Add({.local_rank = LocalRank(local_rank),
                   .pid = 1000 + local_rank,
                   .exit = exit,
                   .failed_at = At(local_rank),
                   .uptime = seconds(3)},
                  {.last_signal = last_signal});
  }
  void Complete() {
    failures_.Complete(
        {.stderr_tail = [this](LocalRank r) { return tails_[static_cast<int>(r.value())]; },
         .tail_has_stdout = [](LocalRank r) { return r == LocalRank(3); },
         .evidence_of_sigkill =
             [](pid_t pid) { return std::vector<std::string>{absl::StrCat("the kernel killed ", pid)}; },
         .evidence_of_gpus = [this](const Failure& f) { return gpu_errors_[static_cast<int>(f.pid)]; }});
  }
  std::vector<int64_t> Ranks() const {
    std::vector<int64_t> ranks;
    for (const Failure& f : failures_.All()) ranks.push_back(f.rank.value());
    return ranks;
  }

  std::map<int, std::string> tails_;
  std::map<int, std::vector<std::string>> gpu_errors_;  // by pid
  NodeFailures failures_{"node1", "trainer"};
};

TEST_F(NodeFailuresTest, EvidenceOfGpusBelongsToAnyFailure) {
  gpu_errors_ = {{1000, {"GPU error\nof two lines"}}, {1001, {"GPU error"}}};
  Add(0, Exited{1});
  Add(1, Signaled{SIGKILL});
  Add(2, Exited{1});
  Complete();
  Complete();  // replaces the evidence
  ASSERT_THAT(failures_.All(), SizeIs(3));
  EXPECT_THAT(failures_.All()[0].evidence, ElementsAre(Not(HasSubstr("\n"))));
  EXPECT_THAT(failures_.All()[1].evidence, ElementsAre("the kernel killed 1001", "GPU error"));
  EXPECT_THAT(failures_.All()[2].evidence, IsEmpty());
}

TEST_F(NodeFailuresTest, DescribesAFailureBeforeCompleteIsCalled) {
  failures_.Add({.local_rank = LocalRank(1),
                 .pid = 77,
                 .exit = Exited{3},
                 .failed_at = At(0),
                 .uptime = milliseconds(1500),
                 .step = 57},
                {.progress = "after step 57"});
  EXPECT_EQ(failures_.Of(LocalRank(1)),
            (Failure{.rank = Rank(5),
                     .local_rank = LocalRank(1),
                     .host = "node1",
                     .role = "trainer",
                     .pid = 77,
                     .exit = Exited{3},
                     .failed_at = At(0),
                     .cause = "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57",
                     .uptime = milliseconds(1500),
                     .step = 57}));
}

TEST_F(NodeFailuresTest, AddsStderrAndEvidenceWhenComplete) {
  Add(0, Signaled{SIGKILL, false});
  Add(1, Exited{1});
  tails_[1] = absl::StrCat("step 1\n", kTraceback);
  Complete();
  const std::vector<Failure> all = failures_.All();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].exit, ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_THAT(all[0].evidence, ElementsAre("the kernel killed 1000"));
  EXPECT_EQ(all[0].step, std::nullopt);
  EXPECT_EQ(all[1].exception, "ValueError: bad batch");
  EXPECT_THAT(all[1].stderr_tail, HasSubstr("step 1\nTraceback"));
  EXPECT_THAT(all[1].evidence, IsEmpty());
  EXPECT_THAT(failures_.records(), SizeIs(2));
}

TEST_F(NodeFailuresTest, AnExceptionIsNotTheCauseOfSigkill) {
  Add(0, Signaled{SIGKILL, false});
  Add(1, Signaled{SIGABRT, true});
  for (const int rank : {0, 1}) tails_[rank] = kTraceback;
  Complete();
  const std::vector<Failure> all = failures_.All();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].exception, "");
  EXPECT_THAT(all[0].stderr_tail, HasSubstr("ValueError")) << "the tail must contain the exception";
  EXPECT_EQ(all[1].exception, "ValueError: bad batch");
}

TEST_F(NodeFailuresTest, TakesTheExceptionFromTheErrorFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/error.json");
  std::ofstream(path) << R"({"message": {"message": "KeyError: 'loss'", "extraInfo":
      {"py_callstack": "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'loss'\n",
       "timestamp": "17"}}})";
  failures_.AddError(failures_.Add({.local_rank = LocalRank(0), .pid = 1, .exit = Exited{1}}, {}),
                     *ReadErrorFile(path), path);
  EXPECT_EQ(failures_.Of(LocalRank(0)).exception, "KeyError: 'loss'");
}

TEST_F(NodeFailuresTest, TakesTheMessageFromAnErrorFileWithoutATraceback) {
  const std::string path = absl::StrCat(testing::TempDir(), "/plain.json");
  std::ofstream(path) << R"({"message": "dataset is empty\ndetails", "timestamp": 17})";
  failures_.AddError(failures_.Add({.local_rank = LocalRank(0), .pid = 1, .exit = Exited{1}}, {}),
                     *ReadErrorFile(path), path);
  EXPECT_EQ(failures_.Of(LocalRank(0)).exception, "dataset is empty");
}

TEST_F(NodeFailuresTest, WorkersEndedByTheLaunchersSignalsAreNotFailures) {
  Add(0, Exited{7});
  Add(1, Signaled{SIGTERM, false}, SIGTERM);
  Add(2, Exited{143}, SIGTERM);
  Add(3, Signaled{SIGKILL, false}, SIGKILL);
  Add(4, Exited{1}, SIGTERM);  // no exception in stderr
  Add(5, NeverStarted{absl::CancelledError("the node ends")}, SIGTERM);
  Complete();
  EXPECT_THAT(Ranks(), ElementsAre(4));
  EXPECT_THAT(failures_.records(), SizeIs(6));  // torchrun's report includes them
  EXPECT_THAT(failures_.All()[0].evidence, IsEmpty());
}

TEST_F(NodeFailuresTest, WorkersThatFailOnTheirOwnWhileBeingStoppedAreFailures) {
  Add(0, Exited{1});
  Add(1, Signaled{SIGSEGV, true}, SIGTERM);
  Add(2, Signaled{SIGKILL, false}, SIGTERM);  // not sent by the launcher
  Add(3, Exited{1}, SIGTERM);
  Add(4, NeverStarted{absl::NotFoundError("no such program")}, SIGTERM);
  tails_[3] = kTraceback;
  Complete();
  EXPECT_THAT(Ranks(), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT(failures_.All()[2].evidence, SizeIs(1));
}

TEST_F(NodeFailuresTest, MarksAFailureThatFollowsAnother) {
  Add(0, Exited{1});
  Add(1, Exited{1});
  tails_[0] =
      "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer "
      "[10.0.0.2]:1234\n";
  tails_[1] = kTraceback;
  Complete();
  const auto all = failures_.All();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].rank, Rank(5)) << "the cause must come first";
  EXPECT_EQ(all[0].origin, FailureOrigin::kOwn);
  EXPECT_EQ(all[1].origin, FailureOrigin::kFollowsAnother);
  EXPECT_EQ(RootCause(failures_.records()), 1u);
}

// Rank 4 raises an exception but takes several seconds to exit. Rank 5 crashes in the meantime, because rank
// 4 does not respond.
TEST_F(NodeFailuresTest, AWorkerThatTakesLongToExitIsTheRootCause) {
  const auto noticed = [](int ms) { return absl::FromUnixSeconds(1795248890) + absl::Milliseconds(ms); };
  failures_.Add({.local_rank = LocalRank(1),
                 .pid = 1001,
                 .exit = Signaled{SIGSEGV, false},
                 .failed_at = At(4000),
                 .uptime = seconds(60)},
                {.time = noticed(4000)});
  const size_t slow = failures_.Add({.local_rank = LocalRank(0),
                                     .pid = 1000,
                                     .exit = Exited{1},
                                     .failed_at = At(5300),
                                     .uptime = seconds(60)},
                                    {.time = noticed(5300), .last_signal = SIGTERM});
  failures_.AddError(slow, {.text = kTraceback, .timestamp = 1795248890, .json = ""}, "e.json");
  Complete();
  EXPECT_THAT(Ranks(), ElementsAre(4, 5));
  EXPECT_EQ(failures_.All()[0].failed_at, At(1000));
  EXPECT_EQ(RootCause(failures_.records()), 1u);
}

TEST_F(NodeFailuresTest, LimitsTheSizeOfManyFailures) {
  for (int i = 0; i < 200; ++i) {
    Add(i, Exited{1 + i % 7});
    tails_[i] = std::string(100'000, 'x');
  }
  Complete();
  const auto all = failures_.All();
  ASSERT_THAT(all, SizeIs(64));
  int tails = 0;
  size_t bytes = 0;
  for (const Failure& f : all) {
    tails += f.stderr_tail.empty() ? 0 : 1;
    bytes += EncodeFailure(f, At(1000)).ByteSizeLong();
  }
  EXPECT_EQ(tails, 4);
  EXPECT_LT(bytes, 64u << 10);
}

TEST_F(NodeFailuresTest, TheStderrTailIsValidUtf8) {
  Add(0, Exited{1});
  for (int i = 0; i < 30; ++i) absl::StrAppend(&tails_[0], "line ", i, "\xff\n");
  Complete();
  const Failure failure = failures_.All()[0];
  EXPECT_THAT(failure.stderr_tail, StartsWith("line 10"));
  EXPECT_THAT(failure.stderr_tail, Not(HasSubstr("\xff")));
  EXPECT_EQ(DecodeFailure(EncodeFailure(failure, At(0)), At(0)).stderr_tail, failure.stderr_tail);
}

TEST_F(NodeFailuresTest, ANewRoundStartsWithoutFailures) {
  Add(0, Exited{1});
  failures_.BeginRound({.round = Round(3), .first_rank = Rank(0)});
  EXPECT_TRUE(failures_.empty());
  Add(0, Exited{1});
  EXPECT_THAT(Ranks(), ElementsAre(0));
}

}  // namespace
}  // namespace ddprun
