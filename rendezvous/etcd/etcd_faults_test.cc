// The register on etcd while members are killed, suspended or not reachable.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/time.h"
#include "boost/asio/steady_timer.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/testing/etcd_caller.h"
#include "rendezvous/etcd/testing/etcd_cluster.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class EtcdFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = EtcdCluster::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }
  static EtcdCluster::Options Members(int members) {
    return {.members = members, .flags = {"--heartbeat-interval=50", "--election-timeout=500"}};
  }
  // The endpoints, beginning with that of `first`.
  static EtcdOptions Options(const EtcdCluster& etcd, int first = 0) {
    EtcdOptions options = {.endpoints = etcd.endpoints(), .run_id = "job"};
    std::rotate(options.endpoints.begin(), options.endpoints.begin() + first, options.endpoints.end());
    return options;
  }
};

// A writer adds its next tag to the charter, which is the list of all tags so far.
class Writer {
 public:
  Writer(std::string name, const EtcdOptions& options) : name_(std::move(name)), caller(options) {}

  // One swap. If its answer is lost, reads the record until there is an answer.
  void Step(std::vector<std::string>* acknowledged, std::set<std::string>* lost) {
    if (!known_) Read();
    const std::string tag = absl::StrCat(name_, ++steps_);
    const auto result = caller.Swap(record_, tag, absl::StrCat(record_.charter, tag, ","), seconds(2));
    if (!result.ok()) {
      lost->insert(tag);
      return Read();
    }
    if (result->swapped) acknowledged->push_back(tag);
    EXPECT_EQ(result->swapped, result->current.lead == tag);
    Saw(result->current);
  }
  const RegisterRecord& record() const { return record_; }

 private:
  const std::string name_;

 public:
  EtcdCaller caller;

 private:
  void Read() {
    for (int i = 0; i < 20; ++i) {
      const auto record = caller.Read(seconds(2));
      if (!record.ok()) continue;
      return Saw(*record);
    }
    ADD_FAILURE() << "no answer to reads";
  }
  void Saw(const RegisterRecord& record) {
    EXPECT_GE(record.version, record_.version);
    if (record.version == record_.version) {
      EXPECT_EQ(record.charter, record_.charter);
    } else {
      // Nothing that was once in the record is lost.
      EXPECT_EQ(record.charter.substr(0, record_.charter.size()), record_.charter);
    }
    record_ = record;
    known_ = true;
  }

  RegisterRecord record_;
  bool known_ = false;
  int steps_ = 0;
};

TEST_F(EtcdFaultsTest, NoWriteIsLostWhenTheLeaderIsKilledWhileSwapsAreInFlight) {
  EtcdCluster etcd(Members(3));
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  std::vector<std::string> acknowledged;
  std::set<std::string> lost;
  int kills = 0;
  const int first = etcd.Leader();
  Writer a("a", Options(etcd, first));
  Writer b("b", Options(etcd, (first + 1) % 3));
  for (int round = 0; round < 4; ++round) {
    const int leader = etcd.Leader();
    for (int i = 0; i < 5; ++i) {
      a.Step(&acknowledged, &lost);
      b.Step(&acknowledged, &lost);
    }
    Writer& writer = round % 2 == 0 ? a : b;
    boost::asio::steady_timer timer(writer.caller.io(), std::chrono::microseconds(random() % 1500));
    timer.async_wait([&](const boost::system::error_code&) {
      etcd.Signal(leader, SIGKILL);
      ++kills;
    });
    // The timer fires during one of these steps.
    for (int i = 0; i < 1000 && kills == round; ++i) writer.Step(&acknowledged, &lost);
    etcd.Kill(leader);
    const size_t before = acknowledged.size();
    for (int i = 0; i < 5; ++i) {
      a.Step(&acknowledged, &lost);
      b.Step(&acknowledged, &lost);
    }
    EXPECT_GT(acknowledged.size(), before);
    EXPECT_NE(etcd.Leader(), leader);
    etcd.Restart(leader);
  }
  EXPECT_EQ(kills, 4);

  a.Step(&acknowledged, &lost);
  b.Step(&acknowledged, &lost);
  const RegisterRecord end = b.caller.MustRead();
  std::vector<std::string> written = absl::StrSplit(end.charter, ',', absl::SkipEmpty());
  EXPECT_EQ(std::set<std::string>(written.begin(), written.end()).size(), written.size()) << end.charter;
  // What was acknowledged was written, in this order. Whatever else was written was not answered.
  std::vector<std::string> known;
  for (const std::string& tag : written)
    if (lost.count(tag) == 0) known.push_back(tag);
  EXPECT_EQ(known, acknowledged);
  RecordProperty("lost_answers", static_cast<int>(lost.size()));
}

// The leader has the request, but cannot commit it, and is then killed.
TEST_F(EtcdFaultsTest, ASwapThatIsNotAnsweredMayHappenLater) {
  EtcdCluster etcd(Members(3));
  const int leader = etcd.Leader();
  EtcdCaller a(Options(etcd, leader));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  for (int i = 0; i < 3; ++i)
    if (i != leader) etcd.Signal(i, SIGSTOP);
  const auto lost = a.Swap(first, "l2", std::nullopt, milliseconds(500));
  EXPECT_FALSE(lost.ok());
  etcd.Kill(leader);
  for (int i = 0; i < 3; ++i)
    if (i != leader) etcd.Signal(i, SIGCONT);
  const RegisterRecord now = a.MustRead();
  EXPECT_EQ(now.charter, "c1");
  if (now.lead != "l2") {
    EXPECT_EQ(now.lead, "l1");
    EXPECT_EQ(now.version, first.version);
  }
  const RegisterRecord next = a.MustSwap(now, "l3");
  EXPECT_GT(next.version, now.version);
  EXPECT_EQ(a.MustRead().lead, "l3");
}

TEST_F(EtcdFaultsTest, AReadPassesOverASuspendedMember) {
  EtcdCluster etcd(Members(3));
  const int suspended = (etcd.Leader() + 1) % 3;
  EtcdCaller a(Options(etcd, suspended));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  etcd.Signal(suspended, SIGSTOP);
  const auto read = a.Read(seconds(2));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->version, first.version);
  // The next call begins with the member that has answered.
  const auto swap = a.Swap(first, "l2", std::nullopt, seconds(2));
  ASSERT_TRUE(swap.ok()) << swap.status();
  EXPECT_TRUE(swap->swapped);
  etcd.Signal(suspended, SIGCONT);
}

TEST_F(EtcdFaultsTest, ASwapIsNotSentTwiceWhenAMemberIsSuspended) {
  EtcdCluster etcd(Members(3));
  const int suspended = (etcd.Leader() + 1) % 3;
  EtcdCaller a(Options(etcd, suspended));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  etcd.Signal(suspended, SIGSTOP);
  const auto lost = a.Swap(first, "l2", std::nullopt, milliseconds(500));
  EXPECT_TRUE(absl::IsDeadlineExceeded(lost.status())) << lost.status();
  EXPECT_EQ(a.MustRead().lead, "l1");
  etcd.Signal(suspended, SIGCONT);
}

TEST_F(EtcdFaultsTest, WithoutAMajorityTheErrorSaysSo) {
  EtcdCluster etcd(Members(3));
  EtcdCaller a(Options(etcd, 2));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  etcd.Kill(0);
  etcd.Kill(1);
  const absl::Status read = a.Read(seconds(3)).status();
  EXPECT_TRUE(absl::IsUnavailable(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("the member has no leader"));
  const absl::Status swap = a.Swap(first, "l2", std::nullopt, seconds(1)).status();
  EXPECT_TRUE(absl::IsUnavailable(swap)) << swap;
  etcd.Restart(0);
  const auto again = a.Swap(first, "l3");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->swapped) << "a swap that no member had accepted was carried out: "
                              << again->current.lead;
}

TEST_F(EtcdFaultsTest, ARecordSurvivesTheEndOfAllMembers) {
  EtcdCluster etcd(Members(1));
  EtcdCaller a(Options(etcd));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  etcd.Kill(0);
  const TimePoint begin = std::chrono::steady_clock::now();
  for (const absl::Status& status :
       {a.Read(milliseconds(500)).status(), a.Swap(first, "l2", std::nullopt, milliseconds(500)).status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(etcd.endpoints()[0]));
    EXPECT_THAT(std::string(status.message()), HasSubstr("Connection refused"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  etcd.Restart(0);
  EXPECT_EQ(a.MustSwap(first, "l3").charter, "c1");
}

TEST_F(EtcdFaultsTest, EndpointsThatCannotBeReachedArePassedOver) {
  EtcdCluster etcd(Members(1));
  EtcdOptions options = Options(etcd);
  // Port 1 is that of tcpmux, which no program here listens on.
  options.endpoints = {"no-such-host.invalid:2379", "127.0.0.1:1", etcd.endpoints()[0]};
  EtcdCaller reader(options);
  EXPECT_FALSE(reader.MustRead().exists);
  EtcdCaller writer(options);
  EXPECT_EQ(writer.MustSwap({}, "l1", "c1").lead, "l1");
  EXPECT_EQ(reader.MustRead().lead, "l1");

  options.endpoints.pop_back();
  EtcdCaller nobody(options);
  const absl::Status status = nobody.Read(seconds(1)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1: "));
}

TEST_F(EtcdFaultsTest, CompactionDoesNotDisturb) {
  EtcdCluster etcd(Members(1));
  EtcdCaller a(Options(etcd));
  RegisterRecord record = a.MustSwap({}, "l0", "c1");
  for (int i = 0; i < 10; ++i) {
    record = a.MustSwap(record, absl::StrCat("l", i));
    etcd.Ctl({"compact", absl::StrCat(record.version)});
  }
  etcd.Ctl({"defrag"});
  EtcdCaller b(Options(etcd));
  EXPECT_EQ(b.MustRead().version, record.version);
  EXPECT_EQ(b.MustSwap(record, "end").charter, "c1");
}

TEST_F(EtcdFaultsTest, KeysWithoutWritesAreRemoved) {
  constexpr Duration kTtl = seconds(4);
  EtcdCluster etcd(Members(1));
  EtcdOptions options = Options(etcd);
  options.garbage_ttl = kTtl;
  EtcdCaller a(options);
  EtcdCaller b(options);
  RegisterRecord last = a.MustSwap({}, "l0", "c1");
  // The lease is that of all writers: the charter does not end with the process that has written it.
  const TimePoint until = std::chrono::steady_clock::now() + 3 * kTtl / 2;
  int writes = 0;
  boost::asio::steady_timer timer(b.io());
  while (std::chrono::steady_clock::now() < until) {
    last = b.MustSwap(last, absl::StrCat("l", ++writes));
    ASSERT_EQ(last.charter, "c1");
    timer.expires_after(kTtl / 40);
    timer.wait();
  }
  RegisterRecord record = a.MustRead();
  EXPECT_EQ(record.version, last.version);
  EXPECT_EQ(record.charter, "c1");

  const TimePoint deadline = std::chrono::steady_clock::now() + 10 * kTtl;
  while (record.exists && std::chrono::steady_clock::now() < deadline) {
    timer.expires_after(kTtl / 40);
    timer.wait();
    record = a.MustRead();
  }
  EXPECT_FALSE(record.exists);
  EXPECT_EQ(record.charter, "");
  // The lease is granted again.
  EXPECT_GT(a.MustSwap(record, "l1", "c2").version, last.version);
}

}  // namespace
}  // namespace ddprun
