// The contract of a register among voters in other processes, which are threads here, by gRPC.
#include "rendezvous/voters/voter_register.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/uuid.h"
#include "base/wake_timer.h"
#include "boost/asio/post.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/endpoint.h"
#include "net/testing/io_thread.h"
#include "rendezvous/charter/testing/register_contract.h"
#include "rendezvous/server/coordinator_host.h"
#include "rendezvous/voters/grpc_vote_client.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {
namespace {

std::unique_ptr<VoterRegister> MakeRegister(boost::asio::io_context& io, const std::string& run_id,
                                            const Voter& self, bool founds = false) {
  VoterRegister::Parts parts;
  parts.run_id = run_id;
  parts.self = self;
  parts.founds = founds;
  parts.seed = std::hash<std::string>()(self.id);
  parts.timer = std::make_unique<AsioWakeTimer>(io);
  parts.client = std::make_unique<GrpcVoteClient>(io, run_id);
  return std::make_unique<VoterRegister>(std::move(parts));
}

// A process with a voter for each job.
class VoterProcess {
 public:
  VoterProcess() {
    thread_.Run([this] {
      auto host = CoordinatorHost::Open(thread_.io(), "127.0.0.1", 0, [](auto...) {});
      EXPECT_TRUE(host.ok()) << host.status();
      host_ = *std::move(host);
      host_->ServeVotes([this](const proto::VoteRequest& request) -> absl::StatusOr<proto::VoteReply> {
        const auto found = registers_.find(request.run_id());
        if (found == registers_.end()) return absl::NotFoundError("no such job");
        return found->second->Answer(request);
      });
      return 0;
    });
  }
  ~VoterProcess() {
    thread_.Run([this] {
      registers_.clear();
      host_ = nullptr;
      return 0;
    });
  }

  Voter AddJob(const std::string& run_id) {
    return thread_.Run([&] {
      Voter self{RandomUuid(), ToString(Endpoint{"127.0.0.1", host_->port()})};
      registers_[run_id] = MakeRegister(thread_.io(), run_id, self);
      return self;
    });
  }
  void Suspend() {
    const std::lock_guard lock(mutex_);
    suspended_ = true;
    boost::asio::post(thread_.io(), [this] {
      std::unique_lock lock(mutex_);
      resumed_.wait(lock, [this] { return !suspended_; });
    });
  }
  void Resume() {
    const std::lock_guard lock(mutex_);
    suspended_ = false;
    resumed_.notify_all();
  }

 private:
  IoThread thread_;
  std::unique_ptr<CoordinatorHost> host_;
  std::map<std::string, std::unique_ptr<VoterRegister>> registers_;  // by run id
  std::mutex mutex_;
  std::condition_variable resumed_;
  bool suspended_ = false;
};

class Voters final : public RegisterService {
 public:
  explicit Voters(int voters) : processes_(voters) {}

  std::unique_ptr<CharterRegister> Open(boost::asio::io_context& io, const std::string& run_id) override {
    VoterSet& voters = voters_[run_id];
    if (voters.number == 0) {
      voters.number = 1;
      for (VoterProcess& process : processes_) voters.now.voters.push_back(process.AddJob(run_id));
      voters.now.tie_breaker = voters.now.voters.front().id;
    }
    auto opened = MakeRegister(io, run_id, {.id = RandomUuid(), .address = "127.0.0.1:1"});
    opened->Learn(voters);
    return opened;
  }
  void Suspend() override {
    for (VoterProcess& process : processes_) process.Suspend();
  }
  void Resume() override {
    for (VoterProcess& process : processes_) process.Resume();
  }
  // One voter fewer than a quorum stops.
  void SuspendMinority(bool suspend) {
    for (size_t i = 0; 2 * i + 1 < processes_.size(); ++i)
      suspend ? processes_[i].Suspend() : processes_[i].Resume();
  }

 private:
  std::vector<VoterProcess> processes_;
  std::map<std::string, VoterSet> voters_;  // by run id
};

RegisterService* One() {
  static Voters voters(1);
  return &voters;
}
RegisterService* Three() {
  static Voters voters(3);
  return &voters;
}
INSTANTIATE_TEST_SUITE_P(OneVoter, RegisterContractTest, testing::Values(&One));
INSTANTIATE_TEST_SUITE_P(OneVoter, RegisterLimitTest, testing::Values(&One));
INSTANTIATE_TEST_SUITE_P(ThreeVoters, RegisterContractTest, testing::Values(&Three));
INSTANTIATE_TEST_SUITE_P(ThreeVoters, RegisterLimitTest, testing::Values(&Three));

TEST(VoterRegisterTest, AMinorityOfTheVotersIsNotNeeded) {
  Voters voters(3);
  RegisterCaller a([&](auto& io) { return voters.Open(io, "job"); });
  RegisterCaller b([&](auto& io) { return voters.Open(io, "job"); });
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  voters.SuspendMinority(true);
  const RegisterRecord second = b.MustSwap(first, "l2");
  EXPECT_EQ(second.charter, "c1");
  voters.SuspendMinority(false);
  ExpectEqual(a.MustRead(), second);
}

TEST(VoterRegisterTest, WithoutVotersTheErrorSaysSo) {
  RegisterCaller a([](auto& io) { return MakeRegister(io, "job", {"id", "127.0.0.1:1"}); });
  const absl::Status status = a.Read(seconds(1)).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "no voter of the job is known: no round has started");
}

TEST(VoterRegisterTest, AVoterThatHasExitedIsNamed) {
  RegisterCaller a([](auto& io) {
    auto opened = MakeRegister(io, "job", {"id", "127.0.0.1:2"});
    opened->Learn({.number = 2, .now = {.voters = {{"gone", "127.0.0.1:1"}}, .tie_breaker = "gone"}});
    return opened;
  });
  const absl::Status status = a.Read(seconds(10)).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), testing::HasSubstr("have exited (127.0.0.1:1)"));
}

TEST(VoterRegisterTest, TheFounderIsTheOnlyVoterAtFirst) {
  VoterProcess other;
  const Voter voter = other.AddJob("job");
  VoterRegister* founder = nullptr;
  RegisterCaller a([&](auto& io) {
    auto opened = MakeRegister(io, "job", {"founder", "127.0.0.1:1"}, /*founds=*/true);
    founder = opened.get();
    return opened;
  });
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  // A process that does not answer does not become a voter.
  founder->SetCandidates({"127.0.0.1:1", voter.address, "127.0.0.1:2"});
  EXPECT_EQ(founder->voters().number, 1);
  RegisterRecord record = a.MustSwap(first, "l2", "c2");
  EXPECT_EQ(founder->voters().number, 2);
  ASSERT_EQ(founder->voters().now.voters.size(), 2);
  EXPECT_EQ(founder->voters().now.voters[1], voter);
  EXPECT_EQ(founder->voters().now.tie_breaker, "founder");
  EXPECT_FALSE(founder->voters().before);
  // It hands over to the other one.
  founder->SetCandidates({voter.address});
  record = a.MustSwap(record, "l4", "c4");
  EXPECT_EQ(founder->voters().now.voters, std::vector<Voter>({voter}));
  RegisterCaller b([&](auto& io) {
    auto opened = MakeRegister(io, "job", {"b", "127.0.0.1:3"});
    opened->Learn(founder->voters());
    return opened;
  });
  ExpectEqual(b.MustRead(), record);
}

TEST(VoterRegisterTest, AProcessLearnsFromTheRecordsThatItAcceptsWhoTheVotersAre) {
  boost::asio::io_context io;
  const Voter self{"id", "127.0.0.1:1"}, old{"old", "127.0.0.1:2"};
  const auto opened = MakeRegister(io, "job", self);
  VoteRequest accept{
      .kind = VoteRequest::Kind::kAccept,
      .ballot = {1, "old"},
      .next = {2, "old"},
      .record = VotedRecord{.record = {.version = 5, .exists = true, .lead = "l", .charter = "c"},
                            .written = {1, "old"},
                            .charter_written = {1, "old"},
                            .voters = {.number = 4,
                                       .now = {.voters = {self}, .tie_breaker = self.id},
                                       .before = VoterGroup{{old}, old.id}}}};
  ASSERT_TRUE(opened->Answer(EncodeVoteRequest("job", accept)).ok());
  EXPECT_EQ(opened->voters(), (VoterSet{.number = 3, .now = {{old}, old.id}}));
  // The old voters may exit as soon as the new group is alone.
  accept.ballot = {2, "old"};
  accept.next = {3, "old"};
  accept.record->voters.before.reset();
  ASSERT_TRUE(opened->Answer(EncodeVoteRequest("job", accept)).ok());
  EXPECT_EQ(opened->voters(), accept.record->voters);
}

TEST(VoterRegisterTest, ARequestAboutAnotherJobIsRefused) {
  boost::asio::io_context io;
  const auto opened = MakeRegister(io, "job", {"id", "127.0.0.1:1"}, /*founds=*/true);
  proto::VoteRequest request;
  request.set_run_id("other");
  EXPECT_TRUE(absl::IsNotFound(opened->Answer(request).status()));
  request.set_run_id("job");
  EXPECT_TRUE(opened->Answer(request).ok());
  request.set_kind(proto::VoteRequest::PREPARE);
  EXPECT_TRUE(absl::IsInvalidArgument(opened->Answer(request).status()));
  request.mutable_ballot()->set_counter(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(opened->Answer(request).status()));
  request.mutable_ballot()->set_counter(1);
  EXPECT_TRUE(opened->Answer(request).ok());
  request.set_kind(proto::VoteRequest::ACCEPT);
  request.mutable_next()->set_counter(2);
  EXPECT_TRUE(absl::IsInvalidArgument(opened->Answer(request).status()));  // no record
  request.set_voter("gone");
  request.set_kind(proto::VoteRequest::ASK);
  EXPECT_TRUE(absl::IsNotFound(opened->Answer(request).status()));
}

}  // namespace
}  // namespace ddprun
