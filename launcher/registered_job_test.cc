// Processes of one job with a register in memory: they find each other over real connections.

#include "launcher/registered_job.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/charter/testing/memory_register.h"
#include "rendezvous/coordinator/charter_codec.h"
#include "rendezvous/testing/join.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Duration kLease = milliseconds(800);

proto::AgentMessage Join(const std::string& node) {
  proto::AgentMessage message = JoinOf(node, 2);
  (*message.mutable_join()->mutable_rules())["lease_ms"] = ToMillis(kLease);
  return message;
}

// A node: its coordinator, and an agent without workers.
struct Node {
  Node(boost::asio::io_context& io, MemoryRecord* record, std::string node_name)
      : name(std::move(node_name)), log(name, "INFO") {
    log.SendTo([this](absl::string_view text) { absl::StrAppend(&said, text); });
    auto memory = std::make_unique<MemoryRegister>(record);
    reg = memory.get();
    absl::StatusOr<std::unique_ptr<RegisteredJob>> opened =
        RegisteredJob::Open(io, {.run_id = "j",
                                 .lease = kLease,
                                 .address = "127.0.0.1",
                                 .listen = "127.0.0.1",
                                 .charter_register = std::move(memory),
                                 .service = "the test",
                                 .log = &log});
    EXPECT_TRUE(opened.ok()) << opened.status();
    job = *std::move(opened);
  }
  void Find(Duration limit = seconds(60), bool first = false) {
    over.reset();
    failed = absl::OkStatus();
    job->Find(limit, first, [this](SearchResult result) {
      if (auto* found = std::get_if<std::unique_ptr<CoordinatorLink>>(&result))
        return Attend(std::move(*found));
      if (const auto* dismissed = std::get_if<Dismissed>(&result)) over = *dismissed;
      if (const auto* status = std::get_if<absl::Status>(&result)) failed = *status;
    });
  }
  void Attend(std::unique_ptr<CoordinatorLink> new_link) {
    lost = false;
    link = std::move(new_link);
    link->Start({.on_open = [this] { link->Send(Join(absl::StrCat(name, "/", ++joins))); },
                 .on_message = [this](const proto::CoordinatorMessage& m) { received.push_back(m); },
                 .on_lost = [this](const absl::Status&) { lost = true; },
                 .heartbeat_interval = kLease / 4});
  }
  bool Has(proto::CoordinatorMessage::KindCase kind) const {
    return std::ranges::any_of(received, [kind](const auto& m) { return m.kind_case() == kind; });
  }
  bool leads() const { return link != nullptr && !lost && !job->found(); }

  const std::string name;
  AgentLog log;
  std::string said;
  MemoryRegister* reg = nullptr;
  std::unique_ptr<RegisteredJob> job;
  std::unique_ptr<CoordinatorLink> link;
  int joins = 0;
  std::vector<proto::CoordinatorMessage> received;
  bool lost = false;
  std::optional<Dismissed> over;
  absl::Status failed;
};

class RegisteredJobTest : public ::testing::Test {
 protected:
  // Runs the loop until `done` returns true; fails the test after 60 s.
  void RunUntil(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(seconds(1));
    }
    ASSERT_TRUE(done());
  }
  void Close(Node& node) {
    bool closed = false;
    node.job->Close("the test ends", kLease, [&closed] { closed = true; });
    RunUntil([&closed] { return closed; });
  }

  boost::asio::io_context io_;
  MemoryRecord record_{[this](std::function<void()> what) { boost::asio::post(io_, std::move(what)); }};
};

TEST_F(RegisteredJobTest, NodesFindTheOneThatLeads) {
  Node a(io_, &record_, "a"), b(io_, &record_, "b");
  a.Find();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
  EXPECT_TRUE(a.leads());
  b.Find();
  RunUntil(
      [&] { return b.Has(proto::CoordinatorMessage::kStart) && a.Has(proto::CoordinatorMessage::kStart); });
  EXPECT_FALSE(b.leads());
  EXPECT_EQ(b.job->found()->port, a.job->host().port());
  // Heartbeats of both are answered, with the rest of the lead.
  RunUntil(
      [&] { return a.Has(proto::CoordinatorMessage::kHeard) && b.Has(proto::CoordinatorMessage::kHeard); });
  EXPECT_GT(b.received.back().heard().lead_left_ms(), 0);
}

TEST_F(RegisteredJobTest, AStandbyTakesOverAndTheOldLeaderFollows) {
  Node a(io_, &record_, "a"), b(io_, &record_, "b");
  a.Find();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
  b.Find();
  RunUntil([&] { return b.Has(proto::CoordinatorMessage::kStart); });
  a.reg->why = absl::UnavailableError("the test cuts a off");
  RunUntil([&] { return a.lost && b.lost; });
  EXPECT_THAT(a.said, HasSubstr("the register of the job: the test cuts a off"));
  b.received.clear();
  b.Find();
  a.Find();
  RunUntil([&] { return b.Has(proto::CoordinatorMessage::kWelcome); });
  EXPECT_TRUE(b.leads());
  a.received.clear();
  a.reg->why = absl::OkStatus();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kStart); });
  EXPECT_EQ(a.received.back().start().round(), 1);
  EXPECT_FALSE(a.leads());
}

TEST_F(RegisteredJobTest, AProcessThatEndsHandsTheJobOver) {
  Node a(io_, &record_, "a"), b(io_, &record_, "b");
  a.Find();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
  b.Find();
  RunUntil([&] { return b.Has(proto::CoordinatorMessage::kStart); });
  bool closed = false;
  a.job->Close("a ends", kLease, [&closed] { closed = true; });
  RunUntil(
      [&] { return a.Has(proto::CoordinatorMessage::kStop) && b.Has(proto::CoordinatorMessage::kStop); });
  a.link->Send(ReadyFor(0));
  b.link->Send(ReadyFor(0));
  RunUntil([&] { return b.Has(proto::CoordinatorMessage::kDismiss) && a.lost; });
  EXPECT_EQ(b.received.back().dismiss().reason(), proto::DISMISS_REASON_MOVED);
  a.link.reset();
  b.link->Close();
  b.received.clear();
  const auto start = std::chrono::steady_clock::now();
  b.Find();
  RunUntil([&] { return b.Has(proto::CoordinatorMessage::kWelcome); });
  EXPECT_TRUE(b.leads());
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLease);  // it did not count a lease
  RunUntil([&] { return closed; });
}

TEST_F(RegisteredJobTest, AJobThatIsOverIsReportedWithItsEnd) {
  const Charter charter{.end = Charter::End{Dismissal::kFailed, "rank 1 exited with code 3"}};
  record_.record = {.version = 9, .exists = true, .charter = EncodeCharter("j", charter)};
  record_.record.lead = EncodeLead({.epoch = 4, .leader = "x", .state = Lead::State::kClosed, .swap = 1});
  Node a(io_, &record_, "a");
  a.Find();
  RunUntil([&] { return a.over.has_value(); });
  EXPECT_EQ(a.over->reason, Dismissal::kFailed);
  EXPECT_THAT(a.over->message, AllOf(HasSubstr("job j is over: rank 1 exited"), HasSubstr("--rdzv-id")));
}

TEST_F(RegisteredJobTest, AJobThatHasSucceededIsNotRunAgain) {
  const Charter charter{.end = Charter::End{Dismissal::kSucceeded}};
  record_.record = {.version = 9, .exists = true, .charter = EncodeCharter("j", charter)};
  record_.record.lead = EncodeLead({.epoch = 4, .leader = "x", .state = Lead::State::kClosed, .swap = 1});
  Node a(io_, &record_, "a"), b(io_, &record_, "b");
  a.Find(seconds(60), /*first=*/true);
  RunUntil([&] { return a.over.has_value(); });
  EXPECT_EQ(a.over->reason, Dismissal::kRejected);
  EXPECT_THAT(a.over->message, HasSubstr("job j is over: it has succeeded"));
  b.Find();  // an agent that was cut off meanwhile
  RunUntil([&] { return b.over.has_value(); });
  EXPECT_EQ(b.over->reason, Dismissal::kSucceeded);
}

TEST_F(RegisteredJobTest, ASearchHasALimitAndSaysWhatItWaitsFor) {
  Node a(io_, &record_, "a");
  a.reg->why = absl::UnavailableError("etcd at e1:2379 is away");
  a.Find(milliseconds(300));
  RunUntil([&] { return !a.failed.ok(); });
  EXPECT_TRUE(absl::IsUnavailable(a.failed));
  EXPECT_THAT(std::string(a.failed.message()), AllOf(HasSubstr("found no coordinator of job j within 300 ms"),
                                                     HasSubstr("etcd at e1:2379 is away")));
}

// The leader's address refuses connections, but this node was never a node of its job, so it counts a lease.
TEST_F(RegisteredJobTest, ASearchLastsUntilThisProcessMayLead) {
  record_.record = {.version = 9, .exists = true};
  record_.record.lead = EncodeLead(
      {.epoch = 4, .leader = "x", .address = "127.0.0.1:1", .state = Lead::State::kLeads, .swap = 1});
  Node a(io_, &record_, "a");
  const auto start = std::chrono::steady_clock::now();
  a.Find(kLease / 2);
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
  EXPECT_GE(std::chrono::steady_clock::now() - start, kLease);
}

TEST_F(RegisteredJobTest, AnErrorThatLastsEndsTheFirstSearch) {
  Node a(io_, &record_, "a");
  a.reg->why = absl::PermissionDeniedError("wrong password");
  a.Find(seconds(60), /*first=*/true);
  RunUntil([&] { return !a.failed.ok(); });
  EXPECT_EQ(a.failed.message(), "wrong password");
  // A later search goes on, because the job may be running.
  a.Find();
  a.reg->why = absl::OkStatus();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
}

TEST_F(RegisteredJobTest, ALaterSearchReplacesAnEarlierOne) {
  Node a(io_, &record_, "a");
  bool called = false;
  a.job->Find(seconds(60), false, [&called](const SearchResult&) { called = true; });
  a.Find();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
  EXPECT_FALSE(called);
}

TEST_F(RegisteredJobTest, AJobOfWhichAllNodesLeaveIsForgotten) {
  Node a(io_, &record_, "a");
  a.Find();
  RunUntil([&] { return a.Has(proto::CoordinatorMessage::kWelcome); });
  proto::AgentMessage leave;
  leave.mutable_leave()->set_reason("done");
  leave.mutable_leave()->set_workers_gone(true);
  a.link->Send(leave);
  RunUntil([&] { return absl::StrContains(a.said, "event=handed_over"); });
  Close(a);
  EXPECT_EQ(record_.record.charter, "");
  EXPECT_EQ(DecodeLead(record_.record.lead)->state, Lead::State::kLeft);
}

}  // namespace
}  // namespace ddprun
