#include "proto/value_codec.h"

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

constexpr TimePoint kSent{seconds(1000)};
constexpr TimePoint kReceived{seconds(7)};  // on the receiver's clock

Failure WholeFailure() {
  return {.rank = Rank(3),
          .local_rank = LocalRank(1),
          .host = "n1",
          .role = "trainer",
          .pid = 77,
          .exit = Signaled{SIGSEGV, true},
          .origin = FailureOrigin::kFollowsAnother,
          .failed_at = kSent - milliseconds(4),
          .cause = "rank 3 failed",
          .exception = "ValueError: x",
          .stderr_tail = "a\nb",
          .tail_has_stdout = true,
          .evidence = {"oom", "and more"},
          .uptime = milliseconds(5),
          .step = 6};
}

// Returns `failure` as decoded by the receiver of the encoded and serialized message.
Failure Sent(const Failure& failure) {
  proto::Failure message;
  EXPECT_TRUE(message.ParseFromString(EncodeFailure(failure, kSent).SerializeAsString()));
  return DecodeFailure(message, kReceived);
}
Failure OnReceiversClock(Failure failure) {
  failure.failed_at += kReceived - kSent;
  return failure;
}

TEST(FailureCodecTest, EveryFieldRoundTrips) {
  EXPECT_EQ(Sent(WholeFailure()), OnReceiversClock(WholeFailure()));
  const Failure little{.failed_at = kSent};
  EXPECT_EQ(Sent(little), OnReceiversClock(little));
  Failure zeros = little;
  zeros.uptime = Duration::zero();
  zeros.step = 0;
  EXPECT_EQ(Sent(zeros), OnReceiversClock(zeros));
}

TEST(FailureCodecTest, EveryKindOfExitRoundTrips) {
  for (const ExitInfo& exit :
       {ExitInfo(Exited{0}), ExitInfo(Exited{255}), ExitInfo(Signaled{SIGKILL, false}),
        ExitInfo(Signaled{SIGABRT, true}), ExitInfo(NeverStarted{absl::NotFoundError("no such file")}),
        ExitInfo(NeverStarted{absl::CancelledError("stopped first")}), ExitInfo(Stuck{"in state D"})}) {
    Failure failure = WholeFailure();
    failure.exit = exit;
    EXPECT_EQ(Sent(failure).exit, exit) << ToString(exit);
  }
}

TEST(FailureCodecTest, EveryOriginRoundTrips) {
  for (const FailureOrigin origin :
       {FailureOrigin::kOwn, FailureOrigin::kFollowsAnother, FailureOrigin::kStopped}) {
    EXPECT_EQ(Sent({.origin = origin}).origin, origin);
  }
}

TEST(FailureCodecTest, AbsentFieldsDecodeToDefaults) {
  EXPECT_EQ(DecodeFailure(proto::Failure(), kReceived), Failure{.failed_at = kReceived});
  proto::Failure failure;
  failure.mutable_never_started();
  EXPECT_EQ(DecodeFailure(failure, kReceived).exit, ExitInfo(NeverStarted{absl::UnknownError("")}));
}

TEST(FailureCodecTest, ClampsValuesOutOfRange) {
  proto::Failure failure;
  failure.set_rank(-1);
  failure.set_local_rank(-1);
  failure.set_origin(static_cast<proto::FailureOrigin>(99));
  failure.set_age_us(-1);
  failure.set_uptime_ms(INT64_MAX);
  failure.set_cause(std::string(1 << 19, 'x'));
  failure.set_exception("\xFF");
  failure.set_stderr_tail(absl::StrCat(std::string(1 << 19, 'x'), "\xFF the end"));
  failure.set_stuck(std::string(1 << 19, 'x'));
  for (int i = 0; i < 100; ++i) failure.add_evidence(std::string(1 << 12, 'x'));
  const Failure decoded = DecodeFailure(failure, kReceived);
  EXPECT_EQ(decoded.rank, Rank(0));
  EXPECT_EQ(decoded.local_rank, LocalRank(0));
  EXPECT_EQ(decoded.origin, FailureOrigin::kOwn);
  EXPECT_EQ(decoded.failed_at, kReceived);
  EXPECT_EQ(decoded.cause, std::string(1024, 'x'));
  EXPECT_EQ(decoded.exception, "\uFFFD");
  EXPECT_EQ(decoded.stderr_tail.size(), 8u << 10);
  EXPECT_THAT(decoded.stderr_tail, ::testing::EndsWith("x\uFFFD the end"));
  EXPECT_EQ(decoded.exit, ExitInfo(Stuck{std::string(512, 'x')}));
  EXPECT_EQ(decoded.evidence, std::vector<std::string>(8, std::string(512, 'x')));
  failure.set_age_us(INT64_MAX);
  EXPECT_LT(DecodeFailure(failure, kReceived).failed_at, kReceived);
}

TEST(FailureCodecTest, EncodesInvalidUtf8AsValidText) {
  Failure failure = WholeFailure();
  for (std::string* text : {&failure.host, &failure.role, &failure.cause, &failure.exception,
                            &failure.stderr_tail, &failure.evidence[0]}) {
    *text = "caf\xe9";
  }
  failure.exit = NeverStarted{absl::NotFoundError("caf\xe9")};
  EXPECT_EQ(Sent(failure).host, "caf\uFFFD");
}

// Text from another node must not contain characters that a terminal interprets.
TEST(FailureCodecTest, ReplacesControlCharacters) {
  proto::Failure failure;
  failure.mutable_never_started()->set_code(5);
  failure.mutable_never_started()->set_why("a\x1b[2Jb");
  EXPECT_EQ(DecodeFailure(failure, kReceived).exit, ExitInfo(NeverStarted{absl::NotFoundError("a [2Jb")}));
  proto::JobReport report;
  report.add_lost_nodes("n\r1");
  EXPECT_EQ(DecodeReport(report, kReceived).lost_nodes, std::vector<std::string>{"n 1"});
}

TEST(FailureCodecTest, DecodesAtMost64FailuresOfANode) {
  google::protobuf::RepeatedPtrField<proto::Failure> failures;
  for (int i = 0; i < 70; ++i) *failures.Add() = EncodeFailure(WholeFailure(), kSent);
  EXPECT_EQ(DecodeFailures(failures, kReceived), std::vector<Failure>(64, OnReceiversClock(WholeFailure())));
}

TEST(FailureCodecTest, ReportRoundTrips) {
  JobReport report{.round = Round(7),
                   .groups = {{.first = WholeFailure(), .count = 3, .ranks = {Rank(3), Rank(4), Rank(9)}},
                              {.first = {.failed_at = kSent}}},
                   .more_failures = 2,
                   .lost_nodes = {"node3: its lease expired"},
                   .outcome = "restart 1 of 3"};
  proto::JobReport message;
  ASSERT_TRUE(message.ParseFromString(EncodeReport(report, kSent).SerializeAsString()));
  for (JobReport::Group& group : report.groups) group.first = OnReceiversClock(group.first);
  EXPECT_EQ(DecodeReport(message, kReceived), report);
}

TEST(FailureCodecTest, ClampsReportValuesOutOfRange) {
  proto::JobReport message;
  message.set_more_failures(-1);
  for (int i = 0; i < 100; ++i) message.add_groups()->set_count(-1);
  for (int i = 0; i < 100; ++i) message.mutable_groups(0)->add_ranks(i);
  for (int i = 0; i < 100; ++i) message.add_lost_nodes(std::string(1 << 13, 'x'));
  message.set_outcome("a\x1b[2J\nb");
  const JobReport report = DecodeReport(message, kReceived);
  ASSERT_EQ(report.groups.size(), JobReport::kMaxGroups);
  EXPECT_EQ(report.groups[0].count, 1);
  EXPECT_EQ(report.groups[0].ranks.size(), JobReport::kMaxRanks);
  EXPECT_EQ(report.more_failures, 0);
  EXPECT_EQ(report.lost_nodes, std::vector<std::string>(17, std::string(4096, 'x')));
  EXPECT_EQ(report.outcome, "a [2J b");
}

}  // namespace
}  // namespace ddprun
