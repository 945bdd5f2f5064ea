#include "rendezvous/server/coordinator_host.h"

#include <grpcpp/grpcpp.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/json/parse.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/versions.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/testing/join.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CoordinatorHostTest : public ::testing::Test {
 protected:
  ~CoordinatorHostTest() override {
    thread_.Run([this] {
      link_.reset();
      host_.reset();
    });
  }

  // Returns the body of a page, or the whole response if its status is not 200.
  std::string Get(const std::string& path) {
    RawPeer peer(host_->port());
    peer.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    std::string reply;
    peer.ReceiveToEnd(&reply);
    return reply.substr(reply.find(" 200 ") == std::string::npos ? 0 : reply.find("\r\n\r\n") + 4);
  }
  // Makes the agent in this process join a job of `nodes` nodes.
  void JoinHere(int nodes) {
    thread_.Run([this, nodes] {
      link_ = host_->Link("10.0.0.1");
      link_->Start({.on_message = [this](const proto::CoordinatorMessage& m) { here_ = m; },
                    .on_lost = {},
                    .heartbeat = [](proto::Heartbeat& heartbeat) { heartbeat.set_step(57); }});
      link_->Send(JoinOf("here", nodes));
    });
  }
  void SendHere(const proto::AgentMessage& message) {
    thread_.Run([&] { link_->Send(message); });
  }
  bool AwaitHere(proto::CoordinatorMessage::KindCase kind) {
    return thread_.Eventually([this, kind] { return here_.kind_case() == kind; });
  }
  // Starts to close the host. The returned future becomes ready when the host is closed.
  std::future<void> Close(const std::string& reason, Duration timeout) {
    auto done = std::make_shared<std::promise<void>>();
    thread_.Run([&] { host_->Close(reason, timeout, [done] { done->set_value(); }); });
    return done->get_future();
  }
  static bool Ready(const std::future<void>& done) {
    return done.wait_for(seconds(20)) == std::future_status::ready;
  }

  IoThread thread_;
  std::vector<std::string> log_;  // used on thread_ only
  std::unique_ptr<CoordinatorHost> host_ = thread_.Run([this] {
    return CoordinatorHost::Open(
               thread_.io(), "127.0.0.1", 0,
               [this](absl::string_view event, absl::string_view, absl::string_view reason) {
                 log_.push_back(absl::StrCat(event, " ", reason));
               })
        .value();
  });
  std::unique_ptr<CoordinatorLink> other_;
  std::unique_ptr<CoordinatorLink> link_;  // link of the agent in this process; used on thread_ only
  proto::CoordinatorMessage here_;         // the last message to that agent; used on thread_ only
};

TEST_F(CoordinatorHostTest, LogsWhyAStoreClientIsDisconnected) {
  RawPeer bad(host_->port());
  ASSERT_TRUE(bad.Send(Hex("00 ce f7 85 3c ff")));
  std::string ignored;
  EXPECT_NE(bad.ReceiveToEnd(&ignored), RawPeer::End::kStillOpen);
  const std::vector<std::string> log = thread_.Run([this] { return log_; });
  ASSERT_EQ(log.size(), 1);
  EXPECT_THAT(log[0], StartsWith("store_client_closed 127.0.0.1:"));
  EXPECT_THAT(log[0], testing::HasSubstr("unknown opcode 255"));
}

TEST_F(CoordinatorHostTest, APageNamesTheProcessThatLeads) {
  EXPECT_THAT(Get("/status"), testing::Not(HasSubstr("leader")));
  thread_.Run([this] { host_->SetLeader("10.0.0.7:29400"); });
  for (const char* page : {"/status", "/healthz"})
    EXPECT_THAT(Get(page), HasSubstr(",\"leader\":\"10.0.0.7:29400\"")) << page;
}

// docs/protocol.md: "One port".
TEST_F(CoordinatorHostTest, OnePortServesThreeProtocols) {
  EXPECT_EQ(Get("/healthz"), absl::StrCat("{\"service\":\"ddprun\",\"protocol\":", kProtocolVersion,
                                          ",\"takes_any_job\":true}\n"));
  EXPECT_THAT(Get("/healthz?job=a%20job"), testing::HasSubstr(",\"has_job\":false,\"takes_any_job\":true}"));
  EXPECT_THAT(Get("/nothing"), StartsWith("HTTP/1.1 404"));

  RawPeer store(host_->port());
  store.Send(Hex("00 ce f7 85 3c 0d 37 21 00 00"));  // VALIDATE, PING
  EXPECT_EQ(ToHex(store.Receive(4)), "37210000");

  JoinHere(2);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  const auto stub = proto::Coordinator::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", host_->port()), grpc::InsecureChannelCredentials()));
  const auto agent = stub->Attend(&context);
  ASSERT_TRUE(agent->Write(JoinOf("there", 2)));
  proto::CoordinatorMessage message;
  while (agent->Read(&message) && !message.has_start()) {
  }
  EXPECT_EQ(message.start().group_rank(), 1);
  EXPECT_EQ(message.start().master_addr(), "10.0.0.1");
  EXPECT_TRUE(AwaitHere(proto::CoordinatorMessage::kStart));
  const boost::json::value status = boost::json::parse(Get("/status"));
  EXPECT_EQ(status.at("jobs").at(0).at("nodes").as_array().size(), 2u);

  // Both agents stop their workers and are dismissed. After that, no agent delays Close.
  std::future<void> done = Close("the host goes down", seconds(20));
  while (agent->Read(&message) && !message.has_stop()) {
  }
  EXPECT_TRUE(AwaitHere(proto::CoordinatorMessage::kStop));
  SendHere(ReadyFor(0));
  ASSERT_TRUE(agent->Write(ReadyFor(0)));
  while (agent->Read(&message) && !message.has_dismiss()) {
  }
  EXPECT_EQ(message.dismiss().message(), "the host goes down");
  EXPECT_TRUE(agent->Finish().ok());
  EXPECT_TRUE(AwaitHere(proto::CoordinatorMessage::kDismiss));
  thread_.Run([this] { link_.reset(); });
  EXPECT_TRUE(Ready(done));
}

TEST_F(CoordinatorHostTest, ARenewedStoreIsEmptyAndExistingClientsKeepTheOldStore) {
  const std::string set = Hex("00 ce f7 85 3c 01 02 .. 2f 6b 02 .. 76 31");
  const std::string get = Hex("03 02 .. 2f 6b");
  const std::string count = Hex("07");
  RawPeer old(host_->port());
  old.Send(set + get);
  EXPECT_EQ(ToHex(old.Receive(10)), "02000000000000007631");
  thread_.Run([this] { host_->RenewStore(); });
  RawPeer fresh(host_->port());
  fresh.Send(Hex("00 ce f7 85 3c") + count);
  EXPECT_EQ(ToHex(fresh.Receive(8)), "0000000000000000");
  old.Send(get);
  EXPECT_EQ(ToHex(old.Receive(10)), "02000000000000007631");
}

TEST_F(CoordinatorHostTest, ClosesImmediatelyWithoutAgents) {
  std::future<void> done = Close("enough", seconds(20));
  EXPECT_TRUE(Ready(done));
}

TEST_F(CoordinatorHostTest, CloseNowDoesNotWaitForWorkers) {
  JoinHere(1);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kStart));
  std::future<void> done = Close("enough", milliseconds(1));
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kStop));
  thread_.Run([this] { host_->CloseNow(); });
  EXPECT_TRUE(AwaitHere(proto::CoordinatorMessage::kDismiss));
  EXPECT_TRUE(Ready(done));
}

// docs/protocol.md: "HTTP".
TEST_F(CoordinatorHostTest, AcceptsAWardensReportThatItsNodeHasEnded) {
  JoinHere(2);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kWaiting));
  const auto send = [this](const std::string& target) {
    RawPeer peer(host_->port());
    peer.Send("DELETE " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    std::string reply;
    peer.ReceiveToEnd(&reply);
    return reply.substr(0, reply.find("\r\n"));
  };
  EXPECT_EQ(send("/nodes?job=j&node=there&token=t"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(send("/nodes?job=j&node=here&token="), "HTTP/1.1 403 Forbidden");
  EXPECT_EQ(send("/status"), "HTTP/1.1 404 Not Found");
  thread_.Run([this] {
    proto::AgentMessage join = JoinOf("other/1", 1, "k");
    join.mutable_join()->set_gone_token("secret");
    other_ = host_->Link("10.0.0.2");
    other_->Start({.on_message = [](const proto::CoordinatorMessage&) {}, .on_lost = {}});
    other_->Send(join);
  });
  while (Get("/status").find("other/1") == std::string::npos) {
  }
  EXPECT_EQ(send("/nodes?job=k&node=other%2F1&token=secret"), "HTTP/1.1 204 No Content");
  thread_.Run([this] { other_.reset(); });
}

TEST_F(CoordinatorHostTest, CloseWaitsForAgentsAtMostForTheFarewellTime) {
  JoinHere(2);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kWaiting));
  std::future<void> done = Close("enough", milliseconds(1));  // the agent in this process does not disconnect
  EXPECT_TRUE(Ready(done));
}

TEST_F(CoordinatorHostTest, AgentsThatJoinDuringCloseAreDismissed) {
  JoinHere(2);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kWaiting));
  std::future<void> done = Close("enough", seconds(20));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  const auto stub = proto::Coordinator::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", host_->port()), grpc::InsecureChannelCredentials()));
  const auto late = stub->Attend(&context);
  late->Write(JoinOf("late", 1));
  proto::CoordinatorMessage message;
  ASSERT_TRUE(late->Read(&message));
  EXPECT_EQ(message.dismiss().message(), "enough");
  EXPECT_TRUE(late->Finish().ok());
  thread_.Run([this] { link_.reset(); });
  EXPECT_TRUE(Ready(done));
}

TEST_F(CoordinatorHostTest, APortInUseIsAnError) {
  const absl::Status status = thread_.Run([this] {
    return CoordinatorHost::Open(thread_.io(), "127.0.0.1", host_->port(),
                                 [](absl::string_view, absl::string_view, absl::string_view) {})
        .status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is taken by another program"));
}

TEST_F(CoordinatorHostTest, ALinkMayOutliveTheCoordinator) {
  JoinHere(2);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kWaiting));
  thread_.Run([this] {
    host_.reset();
    link_->Send(JoinOf("again", 2));
    link_.reset();
  });
  thread_.Run([] {});  // returns after all posted handlers have run
}

// docs/protocol.md: "HTTP".
TEST_F(CoordinatorHostTest, ServesEvents) {
  EXPECT_THAT(Get("/events"), HasSubstr("404 Not Found"));
  JoinHere(1);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kStart));
  EXPECT_THAT(Get("/events?job=j&after=1"), StartsWith("{\"seq\":2,"));
  EXPECT_THAT(Get("/events"), StartsWith("{\"seq\":1,"));
  EXPECT_THAT(Get("/events?job=j&after=x"), HasSubstr("after=x: expected a number"));
  EXPECT_THAT(Get("/events?job=k"), HasSubstr("there is no job k; known jobs: j"));
}

// docs/protocol.md: "The agent in the coordinator's own process".
TEST_F(CoordinatorHostTest, TheAgentInThisProcessReportsProgress) {
  JoinHere(1);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kHeard));
  const boost::json::value status = boost::json::parse(Get("/status"));
  EXPECT_EQ(status.at("jobs").at(0).at("nodes").at(0).at("step"), 57);
}

// docs/protocol.md: "Control".
TEST_F(CoordinatorHostTest, ControlGivesNotice) {
  const ControlTarget target{.address = "127.0.0.1", .port = host_->port(), .timeout = seconds(20)};
  JoinHere(1);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kStart));
  const auto notice = [&](const std::string& node, Duration left) {
    return PreemptNode(target, "j", node, "spot instance", left, seconds(300));
  };
  EXPECT_EQ(notice("other", seconds(60)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(notice("host-here", seconds(0)).status().message(), "left_ms is 0, expected 1 to 86400000");
  const absl::StatusOr<std::string> given = notice("host-here", seconds(60));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_THAT(*given, HasSubstr("has notice: its workers stop after a snapshot, within 60 s"));
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kTakeSnapshot));
  const proto::TakeSnapshot asked = thread_.Run([this] { return here_.take_snapshot(); });
  EXPECT_GT(asked.stop_within_ms(), 30'000);
  EXPECT_LE(asked.stop_within_ms(), 40'000);
  EXPECT_GT(asked.left_ms(), 50'000);
}

// docs/protocol.md: "Control".
TEST_F(CoordinatorHostTest, ControlDrainsNodesAndStopsJobs) {
  const ControlTarget target{.address = "127.0.0.1", .port = host_->port(), .timeout = seconds(20)};
  EXPECT_EQ(StopJob(target, "", "enough").status(), absl::NotFoundError("the coordinator has no jobs"));
  JoinHere(1);
  ASSERT_TRUE(AwaitHere(proto::CoordinatorMessage::kStart));
  EXPECT_EQ(DrainNode(target, "j", "host-here", "maintenance").status().code(),
            absl::StatusCode::kFailedPrecondition);
  const absl::StatusOr<std::string> stopped = StopJob(target, "", "enough\xff");
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_EQ(*stopped, "job j is being stopped on 1 node");
  EXPECT_TRUE(AwaitHere(proto::CoordinatorMessage::kStop));
  SendHere(ReadyFor(0));
  EXPECT_TRUE(AwaitHere(proto::CoordinatorMessage::kDismiss));
  EXPECT_EQ(thread_.Run([this] { return here_.dismiss().message(); }), "enough\uFFFD");
}

}  // namespace
}  // namespace ddprun
