#include "worker_sdk/agent_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "base/ids.h"
#include "base/time.h"
#include "base/worker_message.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Report(int64_t step) {
  WorkerReport report;
  report.step = step;
  return Encode(report);
}
std::string Asks() { return Encode(WorkerSurvival{}); }

// The message that arrives within 30 s.
std::optional<AgentChannel::Message> Await(AgentChannel& channel, bool* ended) {
  const AgentChannel::Connection connection = channel.connection();
  pollfd p{connection->get(), POLLIN, 0};
  poll(&p, 1, 30'000);
  return channel.Receive(connection, ended);
}

TEST(AgentChannelTest, WithoutAnAgentNothingIsSent) {
  AgentChannel none("");
  EXPECT_FALSE(none.TrySend(Report(1)));
  EXPECT_EQ(none.Introduce(Asks(), "asking", seconds(30)), UnavailableError("asking: there is no agent"));
  const std::string name = FakeAgent().name();
  AgentChannel gone(name);
  EXPECT_FALSE(gone.TrySend(Report(1)));
  EXPECT_EQ(gone.Introduce(Asks(), "asking", seconds(30)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(gone.Send(Report(1), "reporting", seconds(30)),
            UnavailableError("reporting: there is no connection to the agent"));
}

TEST(AgentChannelTest, TheIntroductionComesFirst) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  ASSERT_EQ(channel.Introduce(Asks(), "asking", seconds(30)), OkStatus());
  ASSERT_TRUE(channel.TrySend(Report(1)));
  EXPECT_TRUE(agent.NextSurvival().has_value());
  EXPECT_TRUE(agent.Next().has_value());

  agent.HangUp();
  EXPECT_FALSE(channel.TrySend(Report(2)));
  EXPECT_EQ(channel.connection(), nullptr);
  EXPECT_TRUE(channel.TrySend(Report(3)));
  EXPECT_TRUE(agent.NextSurvival().has_value()) << "also on the second connection";
  EXPECT_EQ(agent.Next()->step, 3);
}

TEST(AgentChannelTest, SharesItsPageAtTheBeginningOfEachConnection) {
  FakeAgent agent;
  agent.Listen();
  const UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  AgentChannel channel(agent.name(), {.fd = memory.get(), .packet = {LocalRank(3)}});
  ASSERT_EQ(channel.Introduce(Asks(), "asking", seconds(30)), OkStatus());
  EXPECT_TRUE(agent.NextSurvival().has_value());
  EXPECT_THAT(agent.pages(), ElementsAre(WorkerPage{LocalRank(3)}));
  agent.HangUp();
  EXPECT_FALSE(channel.TrySend(Report(2)));
  EXPECT_TRUE(channel.TrySend(Report(3)));
  EXPECT_TRUE(agent.Next().has_value());
  EXPECT_EQ(agent.pages().size(), 2u);
}

TEST(AgentChannelTest, IntroducesItselfOverTheConnectionThatExists) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  ASSERT_TRUE(channel.TrySend(Report(1)));
  EXPECT_FALSE(agent.NextSurvival().has_value());
  ASSERT_EQ(channel.Introduce(Asks(), "asking", seconds(30)), OkStatus());
  EXPECT_TRUE(agent.NextSurvival().has_value());
}

TEST(AgentChannelTest, SendWaitsForRoom) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  int64_t num_sent = 0;
  while (channel.TrySend(Report(num_sent))) ++num_sent;
  EXPECT_GT(num_sent, 0);
  std::thread sender([&] { EXPECT_EQ(channel.Send(Asks(), "asking", std::chrono::minutes(1)), OkStatus()); });
  EXPECT_TRUE(agent.AwaitSurvival(SurvivalState::kAsks).has_value());
  sender.join();
  for (int64_t i = 0; i < num_sent; ++i) {
    const std::optional<WorkerReport> report = agent.Next();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->step, i);
  }
}

TEST(AgentChannelTest, SendSaysWhatItHasWaitedFor) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  while (channel.TrySend(Report(1))) {
  }
  const TimePoint begun = std::chrono::steady_clock::now();
  const Status late = channel.Send(Asks(), "asking to survive", milliseconds(20));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(20));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("asking to survive: the agent has read nothing for 20 ms"));
  EXPECT_EQ(channel.connection(), nullptr) << "the agent must not get a message that counts as lost";
  EXPECT_TRUE(agent.AwaitClose());
}

TEST(AgentChannelTest, ReceivesMessagesUntilTheAgentCloses) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  ASSERT_TRUE(channel.TrySend(Report(1)));
  ASSERT_TRUE(agent.Next().has_value());
  bool ended = false;
  EXPECT_FALSE(channel.Receive(channel.connection(), &ended).has_value());
  agent.Say("garbage");
  agent.Say(Encode(AgentRequest{.round = Round(7)}) + std::string(5000, '\0'));
  agent.Ask({.round = Round(7), .may_survive = true});
  agent.Offer({.round = Round(8), .rank = Rank(0), .group_rank = GroupRank(0)});
  const std::optional<AgentChannel::Message> request = Await(channel, &ended);
  ASSERT_TRUE(request.has_value());
  EXPECT_TRUE(std::get<AgentRequest>(*request).may_survive);
  const std::optional<AgentChannel::Message> offer = Await(channel, &ended);
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(std::get<RoundOffer>(*offer).round, Round(8));
  EXPECT_FALSE(ended);
  agent.HangUp();
  EXPECT_FALSE(Await(channel, &ended).has_value());
  EXPECT_TRUE(ended);
}

TEST(AgentChannelTest, ChangesOfTheConnectionAreNotified) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  const auto changed = [&] {
    pollfd p{channel.changed_fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  };
  EXPECT_FALSE(changed());
  ASSERT_TRUE(channel.TrySend(Report(1)));
  EXPECT_TRUE(changed());
  channel.ClearChanged();
  EXPECT_FALSE(changed());
  const AgentChannel::Connection connection = channel.connection();
  channel.Close(connection);
  EXPECT_TRUE(changed());
  channel.ClearChanged();
  channel.Close(connection);
  EXPECT_FALSE(changed()) << "it is not the channel's any more";
}

TEST(AgentChannelTest, AnExecClosesTheConnection) {
  FakeAgent agent;
  agent.Listen();
  AgentChannel channel(agent.name());
  ASSERT_TRUE(channel.TrySend(Report(1)));
  EXPECT_EQ(fcntl(channel.connection()->get(), F_GETFD), FD_CLOEXEC);
}

}  // namespace
}  // namespace ddprun
