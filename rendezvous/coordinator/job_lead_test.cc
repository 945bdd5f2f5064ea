// Processes that lead a job in turn, on one register in memory, with a clock of the test.

#include "rendezvous/coordinator/job_lead.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/charter/testing/memory_register.h"
#include "rendezvous/coordinator/charter_codec.h"
#include "rendezvous/coordinator/coordinator_fixture.h"

namespace ddprun {
namespace {

constexpr Duration kLease = seconds(60);  // as JoinOf

// The time, and what is to happen at which time.
class Clock {
 public:
  TimePoint now() const { return now_; }
  BootTime boot_now() const { return BootTime(now_.time_since_epoch()); }
  void Soon(std::function<void()> what) { soon_.push_back(std::move(what)); }
  // Lets everything happen that is due within `time`.
  void Run(Duration time = {}) {
    const TimePoint end = now_ + time;
    for (;;) {
      if (!soon_.empty()) {
        const auto what = std::move(soon_.front());
        soon_.pop_front();
        what();
        continue;
      }
      Timer* next = nullptr;
      for (Timer* timer : timers_) {
        if (timer->at && *timer->at <= end && (next == nullptr || *timer->at < *next->at)) next = timer;
      }
      if (next == nullptr) break;
      now_ = std::max(now_, *std::exchange(next->at, std::nullopt));
      std::exchange(next->wake, nullptr)();
    }
    now_ = end;
  }
  std::unique_ptr<WakeTimer> NewTimer() { return std::make_unique<Timer>(this); }

 private:
  struct Timer : WakeTimer {
    explicit Timer(Clock* c) : clock(c) { clock->timers_.push_back(this); }
    ~Timer() override { std::erase(clock->timers_, this); }
    TimePoint Now() const override { return clock->now_; }
    void Set(std::optional<TimePoint> t, std::function<void()> w) override {
      at = t;
      wake = std::move(w);
    }
    Clock* const clock;
    std::optional<TimePoint> at;
    std::function<void()> wake;
  };

  TimePoint now_ = TimePoint() + seconds(1000);
  std::deque<std::function<void()>> soon_;
  std::vector<Timer*> timers_;
};

struct Process {
  Process(Clock* clock, MemoryRecord* service, std::string process_name, const std::string& job = "j",
          Duration lease = kLease, bool register_outlives_job = true)
      : name(std::move(process_name)), reg(service) {
    const auto log = [this](absl::string_view event, absl::string_view, absl::string_view reason) {
      log_text += absl::StrCat(event, " ", reason, "\n");
    };
    coordinator =
        std::make_unique<Coordinator>(clock->NewTimer(), log, CoordinatorLimits{.registered = true});
    JobLead::Parts parts;
    parts.run_id = job;
    parts.lease = lease;
    parts.id = name;
    parts.address = name + ":1";
    parts.charter_register = &reg;
    parts.register_outlives_job = register_outlives_job;
    parts.coordinator = coordinator.get();
    parts.timer = clock->NewTimer();
    parts.boot_now = [clock] { return clock->boot_now(); };
    parts.on_leader = [this](const JobLead::Leader& leader) {
      leaders.push_back(leader.here ? "here" : leader.address);
    };
    parts.on_over = [this](const Charter::End& end) { over = end; };
    parts.on_trouble = [this](const absl::Status& status) { trouble = status; };
    parts.log = log;
    lead.emplace(std::move(parts));
  }
  std::vector<std::string> Leaders() { return std::exchange(leaders, {}); }

  const std::string name;
  std::string log_text;
  MemoryRegister reg;
  std::unique_ptr<Coordinator> coordinator;
  std::optional<JobLead> lead;
  std::vector<std::string> leaders;  // of on_leader
  std::optional<Charter::End> over;
  absl::Status trouble;
};

class JobLeadTest : public ::testing::Test {
 protected:
  using Messages = std::vector<std::string>;

  Messages SendTo(Process& process, FakePeer& peer, const proto::AgentMessage& message) {
    if (peer.id == 0) peer.id = process.coordinator->Attach(&peer);
    process.coordinator->Receive(peer.id, message);
    return peer.Received();
  }
  // The first process leads, and runs round 0 of the nodes a and b, of which a is its own.
  void RunRound() {
    first_.lead->Seek();
    clock_.Run();
    ASSERT_THAT(first_.Leaders(), ElementsAre("here"));
    SendTo(first_, a_, Joining("a"));
    SendTo(first_, b_, Joining("b"));
    clock_.Run();
    ASSERT_THAT(a_.Received(), ElementsAre("start r0 node0/2"));
    ASSERT_THAT(b_.Received(), ElementsAre("start r0 node1/2"));
  }
  void FollowFirst() {
    second_.lead->Seek();
    clock_.Run();
    ASSERT_THAT(second_.Leaders(), ElementsAre("first:1"));
    second_.lead->Connected(/*standby=*/true);
  }
  absl::StatusOr<Charter> Written() const { return DecodeCharter("j", service_.record.charter); }

  Clock clock_;
  MemoryRecord service_{[this](std::function<void()> what) { clock_.Soon(std::move(what)); }};
  Process first_{&clock_, &service_, "first"};
  Process second_{&clock_, &service_, "second"};
  FakePeer a_{/*in_process=*/true}, b_, c_, d_;
};

TEST_F(JobLeadTest, TheFirstProcessLeadsAndOthersFollow) {
  first_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(first_.Leaders(), ElementsAre("here"));
  EXPECT_TRUE(first_.lead->leads());
  second_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(second_.Leaders(), ElementsAre("first:1"));
  EXPECT_FALSE(second_.lead->leads());
  // Sought again, it is told again.
  second_.lead->Seek();
  clock_.Run(kLease / 10);
  EXPECT_THAT(second_.Leaders(), ElementsAre("first:1"));
  first_.lead->Seek();
  EXPECT_THAT(first_.Leaders(), ElementsAre("here"));
}

TEST_F(JobLeadTest, ARoundStartsOnceItsCharterIsInTheRegister) {
  first_.lead->Seek();
  clock_.Run();
  SendTo(first_, a_, Joining("a"));
  EXPECT_THAT(SendTo(first_, b_, Joining("b")), ElementsAre("welcome 15000"));
  EXPECT_THAT(a_.Received(), IsEmpty());
  clock_.Run();
  EXPECT_THAT(a_.Received(), ElementsAre("start r0 node0/2"));
  EXPECT_EQ(Written()->round, Round(0));
}

TEST_F(JobLeadTest, NoRoundStartsWhileTheRegisterDoesNotAnswer) {
  first_.lead->Seek();
  clock_.Run();
  first_.reg.why = absl::UnavailableError("etcd is away");
  SendTo(first_, a_, Joining("a"));
  SendTo(first_, b_, Joining("b"));
  clock_.Run(kLease / 2);
  EXPECT_THAT(b_.Received(), IsEmpty());
  EXPECT_EQ(first_.trouble.message(), "etcd is away");
  first_.reg.why = absl::OkStatus();
  clock_.Run(kLease / 10);
  EXPECT_THAT(b_.Received(), ElementsAre("start r0 node1/2"));
}

TEST_F(JobLeadTest, TheLeadIsRenewedWithoutTheCharter) {
  RunRound();
  const int swaps = first_.reg.swaps;
  clock_.Run(kLease * 9 / 10);  // then the leases of the nodes end
  EXPECT_GE(first_.reg.swaps, swaps + 8);
  EXPECT_EQ(first_.reg.charters, 1);
  EXPECT_TRUE(first_.lead->leads());
}

TEST_F(JobLeadTest, AStandbyTakesOverWhenTheLeaderIsSilent) {
  RunRound();
  FollowFirst();
  clock_.Run(kLease / 10);
  EXPECT_THAT(second_.Leaders(), IsEmpty());
  first_.reg.why = absl::UnavailableError("cut off");
  clock_.Run(kLease * 8 / 10);
  // The old leader has stopped, with all that it leads, before the new one begins.
  EXPECT_FALSE(first_.lead->leads());
  EXPECT_THAT(first_.log_text, HasSubstr("lead_lost the register has not confirmed the lead for 48 s"));
  EXPECT_THAT(b_.Received(), ElementsAre("end"));
  EXPECT_FALSE(second_.lead->leads());
  clock_.Run(kLease * 3 / 10);
  EXPECT_THAT(second_.Leaders(), ElementsAre("here"));
  EXPECT_THAT(second_.log_text, HasSubstr("the last coordinator is lost"));
  // The job continues from its charter: the next round is round 1.
  SendTo(second_, c_, Joining("c"));
  SendTo(second_, d_, Joining("d"));
  clock_.Run(seconds(35));  // half a lease of the nodes
  EXPECT_THAT(d_.Received(), ElementsAre("start r1 node1/2"));
  // The old leader finds the new one.
  first_.reg.why = absl::OkStatus();
  first_.lead->Seek();
  clock_.Run(kLease / 10);
  EXPECT_THAT(first_.Leaders(), ElementsAre("second:1"));
}

TEST_F(JobLeadTest, AJobThatIsHandedOverGoesOnAtOnce) {
  RunRound();
  FollowFirst();
  SendTo(first_, a_, Leaving());
  SendTo(first_, b_, ReadyFor(0));
  EXPECT_THAT(b_.Received(), IsEmpty());
  clock_.Run();
  EXPECT_THAT(b_.Received(), ElementsAre("stop r0", "report r0", "dismiss MOVED", "end"));
  second_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(second_.Leaders(), ElementsAre("here"));
  EXPECT_THAT(second_.log_text, HasSubstr("handed over"));
  bool ended = false;
  first_.lead->End([&ended] { ended = true; });
  clock_.Run();
  EXPECT_TRUE(ended);
}

TEST_F(JobLeadTest, AJobThatAllHaveLeftIsForgotten) {
  first_.lead->Seek();
  clock_.Run();
  SendTo(first_, a_, Joining("a"));
  SendTo(first_, a_, Leaving());
  clock_.Run();
  EXPECT_THAT(first_.log_text, HasSubstr("lead_ended"));
  EXPECT_EQ(service_.record.charter, "");
  second_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(second_.Leaders(), ElementsAre("here"));
  EXPECT_THAT(second_.log_text, HasSubstr("a new job"));
}

TEST_F(JobLeadTest, AHandOverThatWaitsForTheRegisterIsNotForgotten) {
  RunRound();
  SendTo(first_, b_, Leaving());
  SendTo(first_, a_, Leaving());
  bool ended = false;
  first_.lead->End([&ended] { ended = true; });
  clock_.Run();
  EXPECT_TRUE(ended);
  EXPECT_EQ(DecodeLead(service_.record.lead)->state, Lead::State::kLeft);
  EXPECT_EQ(service_.record.charter, "");
}

TEST_F(JobLeadTest, AJobThatIsOverIsNotLedAgain) {
  RunRound();
  SendTo(first_, b_, Leaving());
  first_.coordinator->Stop("j", "enough", [](const absl::StatusOr<std::string>&) {});
  SendTo(first_, a_, ReadyFor(0));
  clock_.Run();
  EXPECT_EQ(Written()->end->outcome, Dismissal::kStopped);
  bool ended = false;
  first_.lead->End([&ended] { ended = true; });
  EXPECT_FALSE(ended);
  clock_.Run();
  EXPECT_TRUE(ended);
  second_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(second_.Leaders(), IsEmpty());
  ASSERT_TRUE(second_.over.has_value());
  EXPECT_EQ(second_.over->outcome, Dismissal::kStopped);
  EXPECT_THAT(second_.over->why, HasSubstr("enough"));
}

TEST_F(JobLeadTest, TheEndOfAJobIsNotWrittenToARegisterThatEndsWithIt) {
  Process third(&clock_, &service_, "third", "j", kLease, /*register_outlives_job=*/false);
  third.lead->Seek();
  clock_.Run();
  SendTo(third, a_, Joining("a"));
  third.coordinator->Stop("j", "enough", [](const absl::StatusOr<std::string>&) {});
  clock_.Run();
  const int swaps = third.reg.swaps;
  third.lead->End([&third] { third.log_text = "ended"; });
  clock_.Run();
  EXPECT_EQ(third.log_text, "ended");
  EXPECT_EQ(third.reg.swaps, swaps);
  EXPECT_EQ(Written()->end->outcome, Dismissal::kStopped);
}

TEST_F(JobLeadTest, AJobForWhichTooFewNodesCameMayBeStartedAgain) {
  first_.lead->Seek();
  clock_.Run();
  SendTo(first_, a_, Joining("a"));
  for (int i = 0; i < 30; ++i) {  // the join timeout is 600 s, the lease 60 s
    SendTo(first_, a_, Beating());
    clock_.Run(seconds(20));
  }
  EXPECT_THAT(a_.Received(), ElementsAre("dismiss JOIN_TIMEOUT", "end"));
  first_.coordinator->CloseAll("its agent has ended");
  first_.lead->End([] {});
  clock_.Run();
  second_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(second_.Leaders(), ElementsAre("here"));
  EXPECT_THAT(second_.log_text, HasSubstr("a new job"));
}

TEST_F(JobLeadTest, TheOutcomeOutlivesACoordinatorThatIsLost) {
  RunRound();
  first_.coordinator->Stop("j", "enough", [](const absl::StatusOr<std::string>&) {});
  clock_.Run();
  first_.reg.why = absl::UnavailableError("cut off");
  second_.lead->Seek();
  clock_.Run(kLease * 2);
  EXPECT_THAT(second_.Leaders(), ElementsAre("first:1", "here"));
  EXPECT_THAT(SendTo(second_, c_, Joining("c")), ElementsAre("welcome 15000", "dismiss STOPPED", "end"));
}

TEST_F(JobLeadTest, AJobThatGoesOnIsNotDeclaredOver) {
  RunRound();
  bool ended = false;
  first_.lead->End([&ended] { ended = true; });
  clock_.Run();
  EXPECT_TRUE(ended);
  EXPECT_EQ(DecodeLead(service_.record.lead)->state, Lead::State::kLeads);
}

TEST_F(JobLeadTest, AProcessThatDoesNotWaitForWorkersAbandonsItsLead) {
  RunRound();
  first_.lead->Withdraw();
  first_.coordinator->CloseAll("it exits");
  clock_.Run();
  EXPECT_THAT(b_.Received(), ElementsAre("stop r0"));
  first_.lead->Abandon();
  first_.coordinator->CloseAll("it exits", /*at_once=*/true);
  clock_.Run();
  EXPECT_THAT(b_.Received(), ElementsAre("end"));
  bool ended = false;
  first_.lead->End([&ended] { ended = true; });
  clock_.Run();
  EXPECT_TRUE(ended);
  EXPECT_EQ(DecodeLead(service_.record.lead)->state, Lead::State::kLeads);
}

TEST_F(JobLeadTest, AProcessThatEndsDoesNotTakeOver) {
  RunRound();
  FollowFirst();
  second_.lead->Seek();
  second_.lead->Withdraw();
  first_.reg.why = absl::UnavailableError("cut off");
  clock_.Run(3 * kLease);
  EXPECT_FALSE(second_.lead->leads());
}

TEST_F(JobLeadTest, ALeadThatComesTooLateIsGivenBack) {
  second_.lead->Seek();
  clock_.Soon([this] { second_.lead->Withdraw(); });  // between the read and the swap, or after both
  clock_.Run();
  EXPECT_FALSE(second_.lead->leads());
  first_.lead->Seek();
  clock_.Run();
  EXPECT_THAT(first_.Leaders(), ElementsAre("here"));
}

TEST_F(JobLeadTest, TheEndThatAStandbyHasReadIsToldWhenItSeeks) {
  RunRound();
  FollowFirst();
  first_.coordinator->Stop("j", "enough", [](const absl::StatusOr<std::string>&) {});
  SendTo(first_, a_, ReadyFor(0));
  SendTo(first_, b_, ReadyFor(0));
  first_.lead->End([] {});
  clock_.Run(kLease);
  ASSERT_TRUE(second_.over.has_value());
  second_.over.reset();
  second_.lead->Seek();
  ASSERT_TRUE(second_.over.has_value());
  EXPECT_EQ(second_.over->outcome, Dismissal::kStopped);
}

TEST_F(JobLeadTest, EndWaitsAtMostForTheRestOfTheLead) {
  RunRound();
  first_.coordinator->Stop("j", "enough", [](const absl::StatusOr<std::string>&) {});
  clock_.Run();
  first_.reg.why = absl::UnavailableError("cut off");
  bool ended = false;
  first_.lead->End([&ended] { ended = true; });
  clock_.Run(kLease * 7 / 10);
  EXPECT_FALSE(ended);
  clock_.Run(kLease / 10);
  EXPECT_TRUE(ended);
}

TEST_F(JobLeadTest, AProcessThatDoesNotLeadEndsAtOnce) {
  bool ended = false;
  second_.lead->End([&ended] { ended = true; });
  EXPECT_FALSE(ended);
  clock_.Run();
  EXPECT_TRUE(ended);
}

TEST_F(JobLeadTest, TheCharterOfAnotherJobOrFormatIsNotTakenOver) {
  for (const bool other_job : {true, false}) {
    std::string charter = EncodeCharter(other_job ? "another" : "j", Charter());
    if (!other_job) charter.replace(charter.find("\"format\":1"), 10, "\"format\":9");
    service_.record = {.version = 20, .exists = true, .charter = charter};
    service_.record.lead = EncodeLead({.epoch = 3, .leader = "x", .state = Lead::State::kLeft, .swap = 1});
    Process process(&clock_, &service_, "third");
    process.lead->Seek();
    clock_.Run(kLease * 3);
    EXPECT_FALSE(process.trouble.ok());
    EXPECT_THAT(std::string(process.trouble.message()),
                HasSubstr(other_job ? "that of job another" : "format 9"));
    EXPECT_THAT(process.Leaders(), IsEmpty());
    EXPECT_EQ(service_.record.version, 20);
  }
}

TEST_F(JobLeadTest, AProcessWithAnotherLeaseDoesNotTakeOver) {
  RunRound();
  Process process(&clock_, &service_, "third", "j", kLease / 10);
  process.lead->Seek();
  clock_.Run();
  EXPECT_TRUE(absl::IsInvalidArgument(process.trouble));
  EXPECT_THAT(std::string(process.trouble.message()),
              HasSubstr("job j has --rdzv-conf=lease_ms=60000, and this node has 6000"));
  first_.reg.why = absl::UnavailableError("cut off");
  clock_.Run(kLease / 2);
  EXPECT_TRUE(first_.lead->leads());
  EXPECT_FALSE(process.lead->leads());
}

TEST_F(JobLeadTest, BeforeTheFirstRoundTheLeaseOfTheLeaderCounts) {
  first_.lead->Seek();
  clock_.Run();
  Process process(&clock_, &service_, "third", "j", kLease / 10);
  process.lead->Seek();
  first_.reg.why = absl::UnavailableError("cut off");
  clock_.Run(kLease * 9 / 10);
  EXPECT_FALSE(process.lead->leads());
  clock_.Run(kLease / 5);
  EXPECT_TRUE(process.lead->leads());
}

TEST_F(JobLeadTest, ARecordThatIsRemovedIsNotTakenAtOnce) {
  RunRound();
  FollowFirst();
  first_.reg.why = absl::UnavailableError("cut off");
  service_.record = {.version = 1000};
  clock_.Run(kLease * 9 / 10);
  EXPECT_FALSE(second_.lead->leads());
  clock_.Run(kLease / 5);
  EXPECT_TRUE(second_.lead->leads());
}

TEST_F(JobLeadTest, TheEndOfAProcessIsNotLostBehindAnAnswer) {
  second_.lead->Seek();  // a read is in flight
  second_.lead->Withdraw();
  bool ended = false;
  second_.lead->End([&ended] { ended = true; });
  clock_.Run();
  EXPECT_TRUE(ended);

  RunRound();
  clock_.Run(kLease / 20);
  first_.lead->Abandon();
  ended = false;
  first_.lead->End([&ended] { ended = true; });
  first_.lead->Connected(/*standby=*/true);
  clock_.Run();
  EXPECT_TRUE(ended);
  const int swaps = first_.reg.swaps;
  clock_.Run(2 * kLease);
  EXPECT_EQ(first_.reg.swaps, swaps);  // it no longer renews its lead
}

TEST_F(JobLeadTest, HeartbeatsSayHowMuchOfTheLeadIsLeft) {
  RunRound();
  SendTo(first_, b_, Beating());
  const int64_t left = b_.last().heard().lead_left_ms();
  EXPECT_GT(left, ToMillis(kLease) * 6 / 10);
  EXPECT_LE(left, ToMillis(kLease) * 8 / 10);
  first_.reg.why = absl::UnavailableError("cut off");
  clock_.Run(kLease / 2);
  SendTo(first_, b_, Beating());
  EXPECT_LE(b_.last().heard().lead_left_ms(), left - ToMillis(kLease) * 4 / 10);
}

}  // namespace
}  // namespace ddprun
