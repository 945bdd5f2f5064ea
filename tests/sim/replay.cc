#include "tests/sim/replay.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/wake_timer.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/util/delimited_message_util.h"
#include "proto/utf8.h"
#include "proto/versions.h"
#include "rendezvous/coordinator/charter_codec.h"
#include "rendezvous/coordinator/coordinator.h"
#include "tests/sim/world/round_rules.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {
namespace {

// Now() returns the time of the step that is being replayed. A tick in the recording fires the timer.
class ReplayTimer final : public WakeTimer {
 public:
  struct State {
    TimePoint now = SimClock::kStart;
    std::function<void()> wake = {};
  };
  explicit ReplayTimer(State* state) : state_(*state) {}

  TimePoint Now() const override { return state_.now; }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    state_.wake = at ? std::move(wake) : nullptr;
  }

 private:
  State& state_;
};

class ReplayPeer final : public AgentPeer {
 public:
  using Sent = std::function<void(const proto::CoordinatorMessage&)>;
  ReplayPeer(const proto::RecordedStep::Connected& connected, Sent sent)
      : address_(connected.address()), in_process_(connected.in_process()), sent_(std::move(sent)) {}

  void Send(SharedMessage message) override { sent_(*message); }
  void End() override {}
  std::string address() const override { return address_; }
  bool in_process() const override { return in_process_; }

 private:
  const std::string address_;
  const bool in_process_;
  const Sent sent_;
};

// The lead of the coordinator's process, with the answers of the step that is being replayed.
class ReplayKeeper final : public CharterKeeper {
 public:
  using Line = std::function<void(const std::string&)>;
  // step: is being replayed.
  //   differs: called if the step has no answer to a question of the coordinator.
  ReplayKeeper(const proto::RecordedStep* const* step, Line line, Line differs)
      : step_(*step), line_(std::move(line)), differs_(std::move(differs)) {}

  void Write(int64_t number, const Charter& charter) override {
    line_(absl::StrCat("  writes charter ", number, ": ", EncodeCharter("", charter)));
  }
  void HandOver(bool forget) override { line_(forget ? "  ends the lead, and the job" : "  ends the lead"); }
  Duration LeadLeft() const override {
    if (!step_->has_lead_left_ms()) differs_("the recording does not say how long the process leads");
    return milliseconds(step_->lead_left_ms());
  }
  void Complete(proto::Start& start) const override {
    if (!step_->has_start_additions()) differs_("the recording does not say what is added to a start");
    start = step_->start_additions();
  }

 private:
  const proto::RecordedStep* const& step_;
  const Line line_;
  const Line differs_;
};

class Replayer {
 public:
  Replayer(bool print, StepSink again)
      : trace_(print),
        again_(std::move(again)),
        keeper_(
            &expected_, [this](const std::string& text) { Line(text); },
            [this](const std::string& why) { Differs(why); }) {}

  absl::Status Run(std::istream& recording) {
    google::protobuf::io::IstreamInputStream in(&recording);
    RETURN_IF_ERROR(ReadHeader(in));
    for (bool end = false; !end;) {
      proto::RecordedStep step;
      if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&step, &in, &end)) {
        if (end) break;
        const void* rest = nullptr;
        int size = 0;
        if (in.Next(&rest, &size)) {
          return absl::InvalidArgumentError(absl::StrCat("step ", result_.steps, " is damaged"));
        }
        result_.whole = false;
        break;
      }
      if (result_.steps == 0) Begin(step.registered());
      RETURN_IF_ERROR(Do(step));
      ++result_.steps;
    }
    result_.length = timer_.now - SimClock::kStart;
    result_.broken = trace_.broken();
    return absl::OkStatus();
  }

  const ReplayResult& result() const { return result_; }

 private:
  static constexpr Duration kLongest = std::chrono::hours(24 * 3650);
  static constexpr size_t kMaxLineBytes = 64 << 10;

  // Strings in a recording may contain arbitrary bytes.
  void Line(const std::string& text) { trace_.Line(timer_.now, Utf8Line(text, kMaxLineBytes)); }

  static absl::Status ReadHeader(google::protobuf::io::ZeroCopyInputStream& in) {
    proto::RecordingHeader header;
    bool end = false;
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&header, &in, &end) ||
        header.magic() != kRecordingMagic) {
      return absl::InvalidArgumentError("not a recording (ddprun --record=FILE writes one)");
    }
    if (header.format() == kRecordingFormat && header.protocol() == kProtocolVersion) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a recording of format ", header.format(), " and protocol ", header.protocol(),
                     "; this build replays format ", kRecordingFormat, " and protocol ", kProtocolVersion,
                     ": replay it with the version that wrote it"));
  }

  void Begin(bool registered) {
    registered_ = registered;
    coordinator_.emplace(
        std::make_unique<ReplayTimer>(&timer_),
        [this](absl::string_view event, absl::string_view run_id, absl::string_view reason) {
          if (event == "job_forgotten") ForgetRules();
          Line(absl::StrCat("  ", event, run_id.empty() ? "" : " of job ", run_id, ": ", reason));
        },
        CoordinatorLimits{.registered = registered});
    coordinator_->RecordTo([this](const proto::RecordedStep& step) { Compare(step); });
    coordinator_->machine_for_test().ObserveForTest(
        [this](const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine) {
          Check(event, effects, machine);
        });
  }

  absl::Status Do(const proto::RecordedStep& step) {
    if (step.at_ns() < 0 || step.at_ns() > kLongest / std::chrono::nanoseconds(1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", result_.steps, " is at ", step.at_ns(), " ns, expected 0 to 10 years"));
    }
    const TimePoint now = SimClock::kStart + std::chrono::nanoseconds(step.at_ns());
    if (now < timer_.now) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", result_.steps, " is earlier than the previous one"));
    }
    // A step long after the coordinator's deadline shows that the coordinator was stopped before that step
    // and received nothing in that time.
    if (due_ && now > *due_ + Lease() / 2) slept_until_ = now + Lease() / 2;
    timer_.now = now;
    expected_ = &step;
    switch (step.event_case()) {
      case proto::RecordedStep::kConnected:
        return Connect(step.connected());
      case proto::RecordedStep::kReceived:
        if (!step.received().message().has_heartbeat()) {
          Line(absl::StrCat("from ", step.received().peer(), ": ",
                            step.received().message().ShortDebugString()));
        }
        coordinator_->Receive(step.received().peer(), step.received().message());
        break;
      case proto::RecordedStep::kDisconnected:
        if (step.disconnected().peer() == 0 || step.disconnected().peer() > peers_.size()) {
          return absl::InvalidArgumentError(absl::StrCat("step ", result_.steps, " closes connection ",
                                                         step.disconnected().peer(),
                                                         ", which was never open"));
        }
        Line(
            absl::StrCat("connection ", step.disconnected().peer(), " ends: ", step.disconnected().reason()));
        coordinator_->Detach(step.disconnected().peer(), step.disconnected().reason());
        break;
      case proto::RecordedStep::kGone:
        Line(absl::StrCat("node ", step.gone().node(), " is reported gone"));
        (void)coordinator_->ReportGone(step.gone().run_id(), NodeId(step.gone().node()), step.gone().token());
        break;
      case proto::RecordedStep::kDrain:
        Line(absl::StrCat("request to drain ", step.drain().node()));
        coordinator_->Drain(step.drain().run_id(), step.drain().node(), step.drain().reason(),
                            [](const auto&) {});
        break;
      case proto::RecordedStep::kPreempt: {
        const proto::RecordedStep::Preempt& preempt = step.preempt();
        Line(absl::StrCat("notice of pre-emption for ", preempt.node()));
        PreemptNode notice{.run_id = preempt.run_id(),
                           .node = preempt.node(),
                           .reason = preempt.reason(),
                           .left = milliseconds(preempt.left_ms())};
        if (preempt.has_back_in_ms()) notice.back_in = milliseconds(preempt.back_in_ms());
        coordinator_->Preempt(notice, [](const auto&) {});
        break;
      }
      case proto::RecordedStep::kStop:
        Line(absl::StrCat("request to stop job ", step.stop().run_id()));
        coordinator_->Stop(step.stop().run_id(), step.stop().reason(), [](const auto&) {});
        break;
      case proto::RecordedStep::kEnding:
        Line(absl::StrCat("the coordinator ends: ", step.ending().reason()));
        coordinator_->CloseAll(step.ending().reason(), step.ending().at_once());
        break;
      case proto::RecordedStep::kTick:
        if (timer_.wake == nullptr) {
          Differs("the recording has a tick, but no deadline is set");
          break;
        }
        std::exchange(timer_.wake, nullptr)();
        break;
      case proto::RecordedStep::kLeadBegun:
        RETURN_IF_ERROR(BeginToLead(step.lead_begun()));
        break;
      case proto::RecordedStep::kLeadLost:
        Line("the lead is lost");
        leads_ = false;
        coordinator_->LeadLost();
        ForgetRules();
        break;
      case proto::RecordedStep::kCharterWritten:
        Line(absl::StrCat("charter ", step.charter_written().number(), " is written"));
        coordinator_->CharterWritten(step.charter_written().number());
        break;
      case proto::RecordedStep::kHandedOver:
        Line("the lead has ended");
        coordinator_->HandedOver();
        break;
      case proto::RecordedStep::EVENT_NOT_SET:
        return absl::InvalidArgumentError(absl::StrCat("step ", result_.steps, " has no event"));
    }
    due_ = coordinator_->machine_for_test().NextDeadline();
    return absl::OkStatus();
  }

  absl::Status BeginToLead(const proto::RecordedStep::LeadBegun& step) {
    if (!registered_ || std::exchange(leads_, true)) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", result_.steps, " begins a lead, which is not possible there"));
    }
    using Step = proto::RecordedStep::LeadBegun;
    begun_ = {.run_id = step.run_id(),
              .how = step.how() == Step::FENCED     ? Takeover::kFenced
                     : step.how() == Step::UNFENCED ? Takeover::kUnfenced
                                                    : Takeover::kHandedOver};
    if (step.has_charter()) {
      ASSIGN_OR_RETURN(begun_.charter, DecodeCharter(begun_.run_id, step.charter()),
                       absl::StrCat("step ", result_.steps));
    }
    Line(absl::StrCat(
        "begins to lead job ", begun_.run_id, ": ",
        begun_.charter ? absl::StrCat(Step::How_Name(step.how()), ", ", step.charter()) : "it is new"));
    coordinator_->BeginToLead(begun_, &keeper_);
    return absl::OkStatus();
  }

  absl::Status Connect(const proto::RecordedStep::Connected& connected) {
    const PeerId id = connected.peer();
    Line(absl::StrCat("connection ", id,
                      connected.in_process() ? " of the coordinator's own agent at " : " from ",
                      connected.address()));
    peers_.push_back(std::make_unique<ReplayPeer>(connected, [this, id](const proto::CoordinatorMessage& m) {
      if (!m.has_heard()) Line(absl::StrCat("  to ", id, ": ", m.ShortDebugString()));
    }));
    if (coordinator_->Attach(peers_.back().get()) == id) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("step ", result_.steps, " opens connection ", id, " out of order"));
  }

  void Compare(const proto::RecordedStep& step) {
    if (again_) again_(step);
    if (step.outcome_crc32() != expected_->outcome_crc32()) Differs("the outcome differs from the recording");
  }
  void Differs(const std::string& why) {
    if (!result_.difference.empty()) return;
    result_.difference =
        absl::StrCat("step ", result_.steps, " at ", ToMillis(timer_.now - SimClock::kStart), " ms: ", why);
    Line(absl::StrCat("DIFFERS: ", why));
  }

  void ForgetRules() {
    const auto& jobs = coordinator_->machine_for_test().jobs();
    std::erase_if(rules_, [&](const auto& entry) {
      return std::none_of(jobs.begin(), jobs.end(),
                          [&](const auto& job) { return &job.second.machine == entry.first; });
    });
  }

  void Check(const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine) {
    std::unique_ptr<RoundRules>& rules = rules_[&machine];
    if (rules == nullptr) {
      NodeFacts facts{.has_workers = [](const NodeId&) { return false; },
                      .has_slept = [this] { return timer_.now < slept_until_; },
                      .registered = registered_};
      rules = begun_.charter
                  ? std::make_unique<RoundRules>(&trace_, *begun_.charter, begun_.how, std::move(facts))
                  : std::make_unique<RoundRules>(&trace_, machine.policy(), std::move(facts));
    }
    rules->Check(event, effects, machine, timer_.now, timer_.now);
  }

  // The shortest lease of all jobs; zero if there is no job.
  Duration Lease() {
    Duration lease = Duration::max();
    for (const auto& [id, job] : coordinator_->machine_for_test().jobs()) {
      lease = std::min(lease, job.machine.policy().lease);
    }
    return lease == Duration::max() ? Duration::zero() : lease;
  }

  Trace trace_;
  const StepSink again_;
  ReplayTimer::State timer_;
  std::vector<std::unique_ptr<ReplayPeer>> peers_;
  ReplayKeeper keeper_;
  std::optional<Coordinator> coordinator_;  // from the first step
  bool registered_ = false;
  bool leads_ = false;
  LeadBegun begun_;  // the last one
  std::map<const RoundMachine*, std::unique_ptr<RoundRules>> rules_;
  std::optional<TimePoint> due_;
  TimePoint slept_until_;
  const proto::RecordedStep* expected_ = nullptr;
  ReplayResult result_;
};

}  // namespace

absl::StatusOr<ReplayResult> Replay(std::istream& recording, bool print, StepSink again) {
  Replayer replayer(print, std::move(again));
  RETURN_IF_ERROR(replayer.Run(recording));
  return replayer.result();
}

}  // namespace ddprun::sim
