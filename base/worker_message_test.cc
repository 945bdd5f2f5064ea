#include "base/worker_message.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

WorkerReport Whole() {
  return {.round = Round(7),
          .rank = Rank(5),
          .local_rank = LocalRank(1),
          .pid = 4242,
          .step = int64_t{1} << 40,
          .phase = WorkerPhase::kSnapshotting,
          .message = "epoch 2",
          .snapshot_step = 0};
}

// Appends a field to an encoded message.
std::string WithField(std::string packet, char tag, const std::string& value) {
  packet += {tag, 0, static_cast<char>(value.size() & 0xff), static_cast<char>(value.size() >> 8)};
  return packet + value;
}

TEST(WorkerMessageTest, RoundTrips) {
  EXPECT_EQ(DecodeWorkerReport(Encode(Whole())), Whole());
  EXPECT_EQ(DecodeWorkerReport(Encode(WorkerReport{})), WorkerReport{});
  for (const bool take : {false, true}) {
    const AgentRequest request{.round = Round(3), .take_snapshot = take};
    EXPECT_EQ(DecodeAgentRequest(Encode(request)), request);
  }
  const AgentRequest stop{
      .round = Round(3), .take_snapshot = true, .stop = WorkerStop{TimePoint(seconds(5)), "because"}};
  EXPECT_EQ(DecodeAgentRequest(Encode(stop)), stop);
  EXPECT_EQ(DecodeWorkerPage(Encode(WorkerPage{LocalRank(7)})), WorkerPage{LocalRank(7)});
}

// The bytes are a contract between releases.
TEST(WorkerMessageTest, HasTheDocumentedBytes) {
  EXPECT_EQ(Encode(AgentRequest{.round = Round(258), .take_snapshot = true}),
            std::string("DDPW\x01\x02\0\0"
                        "\x01\0\x08\0\x02\x01\0\0\0\0\0\0"
                        "\x09\0\x08\0\x01\0\0\0\0\0\0\0",
                        32));
  EXPECT_EQ(EncodeVersionNotice(), std::string("DDPW\x01\x03\0\0", 8));
}

WorkerSurvival Parked() {
  return {.round = Round(7),
          .rank = Rank(5),
          .local_rank = LocalRank(1),
          .pid = 4242,
          .state = SurvivalState::kParked,
          .message = "rank 2 of round 7 is gone"};
}

RoundOffer Offer() {
  return {.round = Round(8),
          .rank = Rank(4),
          .group_rank = GroupRank(1),
          .world_size = 6,
          .group_world_size = 3,
          .role_rank = 2,
          .role_world_size = 4,
          .restart_count = 1,
          .master_addr = "fd00::1",
          .master_port = 29500,
          .node_addr = "fd00::2",
          .lease = milliseconds(5000)};
}

TEST(WorkerMessageTest, WhatSurvivorsSendAndGetRoundTrips) {
  EXPECT_EQ(DecodeWorkerSurvival(Encode(Parked())), Parked());
  WorkerSurvival asks = Parked();
  asks.state = SurvivalState::kAsks;
  asks.message.clear();
  EXPECT_EQ(DecodeWorkerSurvival(Encode(asks)), asks);
  EXPECT_EQ(DecodeRoundOffer(Encode(Offer())), Offer());
  for (int bits = 0; bits < 8; ++bits) {
    const AgentRequest request{.round = Round(3),
                               .may_survive = (bits & 1) != 0,
                               .round_over = (bits & 2) != 0,
                               .no_round_follows = (bits & 4) != 0};
    EXPECT_EQ(DecodeAgentRequest(Encode(request)), request);
  }
}

TEST(WorkerMessageTest, TheMessageOfASurvivalIsCut) {
  WorkerSurvival survival = Parked();
  survival.message.assign(5000, 'x');
  EXPECT_EQ(DecodeWorkerSurvival(Encode(survival))->message.size(), kMaxReportTextBytes);
}

TEST(WorkerMessageTest, RejectsOffersOfPlacesThatDoNotExist) {
  const auto rejects = [](void (*change)(RoundOffer&)) {
    RoundOffer offer = Offer();
    change(offer);
    return !DecodeRoundOffer(Encode(offer));
  };
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.rank = Rank(6); }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.rank = Rank(-1); }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.group_rank = GroupRank(3); }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.role_rank = 4; }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.world_size = 0; }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.master_port = 0; }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.master_port = 65536; }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.master_addr.clear(); }));
  EXPECT_TRUE(rejects([](RoundOffer& o) { o.lease = milliseconds(-1); }));
}

// An offer without a number, such as that of a release that leaves it out, must not be read as 0.
TEST(WorkerMessageTest, RejectsOffersThatLackANumber) {
  const std::string packet = Encode(Offer());
  int removed = 0;
  for (size_t at = 8; at < packet.size();) {
    const size_t length = 4 + static_cast<unsigned char>(packet[at + 2]);
    const int tag = packet[at];
    const bool optional = tag == 22 || tag == 23;  // node_addr, lease_ms
    EXPECT_EQ(DecodeRoundOffer(packet.substr(0, at) + packet.substr(at + length)).has_value(), optional)
        << tag;
    at += length;
    ++removed;
  }
  EXPECT_EQ(removed, 12);
}

TEST(WorkerMessageTest, RejectsSurvivalsWithoutAStateThatIsKnown) {
  const std::string packet = Encode(WorkerSurvival{});
  const std::string without = packet.substr(0, packet.size() - 12);
  EXPECT_EQ(DecodeWorkerSurvival(without), std::nullopt);
  EXPECT_EQ(DecodeWorkerSurvival(WithField(without, 13, std::string("\3\0\0\0\0\0\0\0", 8))), std::nullopt);
  EXPECT_NE(DecodeWorkerSurvival(WithField(without, 13, std::string("\2\0\0\0\0\0\0\0", 8))), std::nullopt);
}

TEST(WorkerMessageTest, SkipsFieldsOfLaterReleases) {
  EXPECT_EQ(DecodeWorkerReport(WithField(Encode(Whole()), 99, "anything")), Whole());
  EXPECT_EQ(DecodeAgentRequest(WithField(Encode(AgentRequest{}), 99, "")), AgentRequest{});
}

TEST(WorkerMessageTest, RejectsEveryPrefixThatCutsAField) {
  const std::string packet = Encode(AgentRequest{.round = Round(1), .take_snapshot = true});
  for (size_t n = 0; n < packet.size(); ++n) {
    const bool between_fields = n == 8 || n == 20;
    EXPECT_EQ(DecodeAgentRequest(packet.substr(0, n)).has_value(), between_fields) << n;
  }
}

TEST(WorkerMessageTest, RejectsOtherMessages) {
  EXPECT_EQ(DecodeWorkerReport(Encode(AgentRequest{})), std::nullopt);
  EXPECT_EQ(DecodeAgentRequest(Encode(WorkerReport{})), std::nullopt);
  EXPECT_EQ(DecodeAgentRequest(EncodeVersionNotice()), std::nullopt);
  EXPECT_EQ(DecodeWorkerPage(Encode(WorkerReport{})), std::nullopt);
  EXPECT_EQ(DecodeWorkerReport(Encode(WorkerPage{})), std::nullopt);
  EXPECT_EQ(DecodeWorkerReport(std::string(100, 'x')), std::nullopt);
  EXPECT_EQ(DecodeWorkerReport(WithField(Encode(Whole()), 99, std::string(4096, 'x'))), std::nullopt);
}

TEST(WorkerMessageTest, RejectsValuesOutOfRange) {
  WorkerReport report = Whole();
  report.local_rank = LocalRank(-1);
  EXPECT_EQ(DecodeWorkerReport(Encode(report)), std::nullopt);
  report.local_rank = LocalRank(1 << 16);
  EXPECT_EQ(DecodeWorkerReport(Encode(report)), std::nullopt);
  EXPECT_EQ(DecodeWorkerPage(Encode(WorkerPage{LocalRank(-1)})), std::nullopt);
  EXPECT_EQ(DecodeWorkerPage(Encode(WorkerPage{LocalRank(1 << 16)})), std::nullopt);
  EXPECT_EQ(DecodeWorkerPage(Encode(WorkerPage{}).substr(0, 8)), std::nullopt) << "without a rank";
  report = Whole();
  report.round = Round(-1);
  EXPECT_EQ(DecodeWorkerReport(Encode(report)), std::nullopt);
  EXPECT_EQ(DecodeWorkerReport(WithField(Encode(Whole()), 5, "\1\2")), std::nullopt) << "a step of 2 bytes";
}

TEST(WorkerMessageTest, TruncatesLongTextBetweenCharacters) {
  WorkerReport report = Whole();
  report.message = std::string(999, 'x') + "\xc3\xa9 and more";
  EXPECT_EQ(DecodeWorkerReport(Encode(report))->message, std::string(999, 'x'));
}

TEST(WorkerMessageTest, TellsTheVersionOfAnotherRelease) {
  std::string packet = Encode(Whole());
  EXPECT_EQ(OtherVersion(packet), std::nullopt);
  packet[4] = 9;
  EXPECT_EQ(OtherVersion(packet), 9);
  EXPECT_EQ(DecodeWorkerReport(packet), std::nullopt);
  EXPECT_EQ(OtherVersion("garbage"), std::nullopt);
}

TEST(WorkerMessageTest, NamesPhases) {
  EXPECT_EQ(NameOf(WorkerPhase::kTraining), "training");
  EXPECT_EQ(NameOf(WorkerPhase::kUnspecified), "");
  EXPECT_EQ(NameOf(WorkerPhase{77}), "") << "a phase of a later release";
}

}  // namespace
}  // namespace ddprun
