#include "launcher/progress/nccl_ras.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "launcher/progress/testing/ras_server.h"
#include "net/local_host.h"

namespace ddprun {
namespace {

std::map<pid_t, RasCounts> Parse(const std::string& answer, const std::set<pid_t>& pids) {
  const auto counts = ParseRas(answer, pids, {"10.0.0.1", "127.0.0.1"});
  EXPECT_TRUE(counts.ok()) << counts.status();
  return counts.value_or(std::map<pid_t, RasCounts>());
}

TEST(ParseRasTest, TellsTheLaggardFromThoseThatWait) {
  const auto counts = Parse(
      RasAnswer(
          {RasCommunicator({{"10.0.0.1", 11, 99, 1}, {"10.0.0.1", 12, 98, 1}, {"10.0.0.2", 11, 99, 1}})}),
      {11, 12, 13});
  ASSERT_EQ(counts.size(), 2);
  EXPECT_EQ(counts.at(11), (RasCounts{.launched = 100, .waits = true, .number = 99}));
  EXPECT_EQ(counts.at(12), (RasCounts{.launched = 99, .waits = false, .number = 98}));
  EXPECT_EQ(OperationOf(counts.at(11)),
            (WorkerEvidence::Operation{.kind = "a collective of NCCL", .number = 99, .in_flight = true}));
  EXPECT_FALSE(OperationOf(counts.at(12))->in_flight);
}

TEST(ParseRasTest, EqualCountsSayNothing) {
  const auto counts =
      Parse(RasAnswer({RasCommunicator({{"10.0.0.1", 11, 9, 0}, {"10.0.0.1", 12, 8, 1}})}), {11, 12});
  EXPECT_EQ(counts.at(11), RasCounts{.launched = 9});
  EXPECT_EQ(OperationOf(counts.at(11)), std::nullopt);
}

// 12 is behind in the communicator of all, because it waits for 13 in another one.
TEST(ParseRasTest, WhoWaitsInOneCommunicatorIsNotBehindInAnother) {
  const std::string all =
      RasCommunicator({{"10.0.0.1", 11, 5, 0}, {"10.0.0.1", 12, 4, 0}, {"10.0.0.1", 13, 4, 0}});
  const std::string pair = RasCommunicator({{"10.0.0.1", 12, 7, 0}, {"10.0.0.1", 13, 6, 0}});
  for (const auto& answer : {RasAnswer({all, pair}), RasAnswer({pair, all})}) {
    const auto counts = Parse(answer, {11, 12, 13});
    EXPECT_EQ(counts.at(11).waits, true);
    EXPECT_EQ(counts.at(12), (RasCounts{.launched = 11, .waits = true, .number = 6}));
    EXPECT_EQ(counts.at(13).waits, false);
  }
}

TEST(ParseRasTest, AnotherJobHasNoneOfTheWorkers) {
  const std::string answer = RasAnswer({RasCommunicator({{"10.0.0.1", 77, 5, 0}, {"10.9.9.9", 11, 5, 0}})});
  EXPECT_TRUE(Parse(answer, {11}).empty());
  EXPECT_TRUE(Parse(RasAnswer({}), {11}).empty());
}

TEST(ParseRasTest, OtherFormatsAreErrors) {
  const std::string good = RasAnswer({RasCommunicator({{"10.0.0.1", 11, 5, 0}})});
  for (const std::string& bad :
       {std::string(),
        std::string("SERVER PROTOCOL 2\nERROR: Unknown command SET FORMAT json\nNCCL version 2.26\n"),
        std::string("{}"), std::string("{\"communicators\": 3}"), std::string("{\"communicators\": [{}]}"),
        std::string("{\"communicators\": [{\"ranks\": [{\"host\": \"10.0.0.1\", \"pid\": -1}]}]}"),
        std::string(
            "{\"communicators\": [{\"ranks\": [{\"host\": 1, \"pid\": 1, \"collective_counts\": {}}]}]}"),
        std::string("{\"communicators\": [{\"ranks\": [{\"host\": \"h\", \"pid\": 1, \"collective_counts\": "
                    "{\"a\": -1}}]}]}"),
        good.substr(0, good.size() / 2)}) {
    EXPECT_EQ(ParseRas(bad, {11}, {"10.0.0.1"}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

std::string OwnAddress() { return InterfaceAddresses().at(0).address; }

class AskRasTest : public testing::Test {
 protected:
  ~AskRasTest() override { unsetenv("NCCL_RAS_ADDR"); }
  // Asks a server that gives these answers to its connections, and no more.
  auto Ask(const std::vector<std::string>& answers, Duration limit = seconds(20)) {
    RasServer server([&](int connection) {
      return static_cast<size_t>(connection) < answers.size() ? std::optional(answers[connection])
                                                              : std::nullopt;
    });
    setenv("NCCL_RAS_ADDR", server.address().c_str(), 1);
    auto counts = AskRas({11, 12}, limit);
    question_ = server.last_question();
    return counts;
  }
  const std::string other_ = RasAnswer({RasCommunicator({{OwnAddress(), 77, 5, 0}})});
  std::string question_;
};

TEST_F(AskRasTest, AsksAgainIfAnotherJobAnswers) {
  const std::string own = RasAnswer({RasCommunicator({{OwnAddress(), 11, 5, 0}, {OwnAddress(), 12, 4, 0}})});
  const auto counts = Ask({other_, other_, own});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->at(12).waits, false);
  EXPECT_EQ(question_, "CLIENT PROTOCOL 2\nTIMEOUT 1\nSET FORMAT json\nVERBOSE STATUS\n");
}

TEST_F(AskRasTest, AnErrorIfOnlyOthersAnswer) {
  EXPECT_EQ(Ask({other_, other_, other_, other_}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(AskRasTest, ASilentPeerTimesOut) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask({}, milliseconds(300)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
}

TEST_F(AskRasTest, NoListener) {
  setenv("NCCL_RAS_ADDR", "127.0.0.1:1", 1);
  EXPECT_EQ(AskRas({11}, seconds(5)).status().code(), absl::StatusCode::kUnavailable);
  setenv("NCCL_RAS_ADDR", "no:such:address", 1);
  EXPECT_FALSE(AskRas({11}, seconds(5)).ok());
}

// Workers are found by the processes below them.
TEST_F(AskRasTest, CountsOfAWorkerAreThoseOfItsProcesses) {
  RasServer server([](int) {
    return RasAnswer({RasCommunicator({{OwnAddress(), getpid(), 5, 0}, {"10.9.9.9", 1, 4, 0}})});
  });
  setenv("NCCL_RAS_ADDR", server.address().c_str(), 1);
  const auto counts = AskRasOfWorkers({getppid(), 0}, seconds(20));
  ASSERT_TRUE(counts);
  ASSERT_EQ(counts->size(), 1);
  EXPECT_EQ(counts->at(getppid()).launched, 5);
}

}  // namespace
}  // namespace ddprun
