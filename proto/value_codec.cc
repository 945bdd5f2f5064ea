#include "proto/value_codec.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/exit_info.h"
#include "base/ids.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

constexpr int64_t kMaxAgeUs = int64_t{1'000'000} * 3600 * 24 * 365 * 2;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxLineBytes = 1024;
constexpr size_t kMaxTailBytes = 8 << 10;
constexpr size_t kMaxTextBytes = 4096;
constexpr int kMaxFailures = 64;
constexpr int kMaxEvidence = 8;
constexpr size_t kMaxEvidenceBytes = 512;

int64_t Between(int64_t value, int64_t min, int64_t max) { return std::clamp(value, min, max); }

void EncodeExit(const ExitInfo& exit, proto::Failure& out) {
  if (const auto* exited = std::get_if<Exited>(&exit)) {
    out.set_exit_code(exited->code);
  } else if (const auto* signaled = std::get_if<Signaled>(&exit)) {
    out.mutable_signaled()->set_signo(signaled->signo);
    out.mutable_signaled()->set_core_dumped(signaled->core_dumped);
  } else if (const auto* never = std::get_if<NeverStarted>(&exit)) {
    out.mutable_never_started()->set_code(never->status.raw_code());
    out.mutable_never_started()->set_why(Utf8Head(never->status.message(), kMaxLineBytes));
  } else if (const auto* stuck = std::get_if<Stuck>(&exit)) {
    out.set_stuck(Utf8Head(stuck->where, kMaxEvidenceBytes));
  } else if (const auto* hung = std::get_if<Hung>(&exit)) {
    out.mutable_hung()->set_finding(Utf8Head(hung->finding, kMaxLineBytes));
    out.mutable_hung()->set_behind(hung->behind);
  }
}

ExitInfo DecodeExit(const proto::Failure& f) {
  switch (f.exit_case()) {
    case proto::Failure::kExitCode:
      return Exited{f.exit_code()};
    case proto::Failure::kSignaled:
      return Signaled{f.signaled().signo(), f.signaled().core_dumped()};
    case proto::Failure::kNeverStarted: {
      const auto code = static_cast<absl::StatusCode>(f.never_started().code());
      return NeverStarted{absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                                       Utf8Line(f.never_started().why(), kMaxLineBytes))};
    }
    case proto::Failure::kStuck:
      return Stuck{Utf8Line(f.stuck(), kMaxEvidenceBytes)};
    case proto::Failure::kHung:
      return Hung{Utf8Line(f.hung().finding(), kMaxLineBytes), f.hung().behind()};
    case proto::Failure::EXIT_NOT_SET:
      break;
  }
  return Exited{1};
}

proto::FailureOrigin EncodeOrigin(FailureOrigin origin) {
  switch (origin) {
    case FailureOrigin::kOwn:
      return proto::FAILURE_ORIGIN_OWN;
    case FailureOrigin::kFollowsAnother:
      return proto::FAILURE_ORIGIN_FOLLOWS_ANOTHER;
    case FailureOrigin::kStopped:
      return proto::FAILURE_ORIGIN_STOPPED;
  }
  return proto::FAILURE_ORIGIN_UNSPECIFIED;
}

FailureOrigin DecodeOrigin(proto::FailureOrigin origin) {
  if (origin == proto::FAILURE_ORIGIN_FOLLOWS_ANOTHER) return FailureOrigin::kFollowsAnother;
  if (origin == proto::FAILURE_ORIGIN_STOPPED) return FailureOrigin::kStopped;
  return FailureOrigin::kOwn;
}

}  // namespace

proto::Failure EncodeFailure(const Failure& f, TimePoint now) {
  proto::Failure out;
  out.set_rank(f.rank.value());
  out.set_local_rank(static_cast<int>(f.local_rank.value()));
  out.set_host(Utf8Head(f.host, kMaxNameBytes));
  out.set_role(Utf8Head(f.role, kMaxNameBytes));
  out.set_pid(f.pid);
  EncodeExit(f.exit, out);
  out.set_origin(EncodeOrigin(f.origin));
  out.set_age_us(Between((now - f.failed_at) / std::chrono::microseconds(1), 0, kMaxAgeUs));
  out.set_cause(Utf8Head(f.cause, kMaxLineBytes));
  out.set_exception(Utf8Head(f.exception, kMaxLineBytes));
  out.set_stderr_tail(Utf8Tail(f.stderr_tail, kMaxTailBytes));
  out.set_tail_has_stdout(f.tail_has_stdout);
  out.set_parked(f.parked);
  for (const std::string& line : f.evidence) {
    if (out.evidence_size() < kMaxEvidence) out.add_evidence(Utf8Head(line, kMaxEvidenceBytes));
  }
  if (f.uptime) out.set_uptime_ms(ToMillis(*f.uptime));
  if (f.step) out.set_step(*f.step);
  return out;
}

Failure DecodeFailure(const proto::Failure& f, TimePoint now) {
  Failure out{.rank = Rank(Between(f.rank(), 0, INT32_MAX)),
              .local_rank = LocalRank(Between(f.local_rank(), 0, INT32_MAX)),
              .host = Utf8Line(f.host(), kMaxNameBytes),
              .role = Utf8Line(f.role(), kMaxNameBytes),
              .pid = f.pid(),
              .exit = DecodeExit(f),
              .origin = DecodeOrigin(f.origin()),
              .failed_at = now - std::chrono::microseconds(Between(f.age_us(), 0, kMaxAgeUs)),
              .cause = Utf8Line(f.cause(), kMaxLineBytes),
              .exception = Utf8Line(f.exception(), kMaxLineBytes),
              .stderr_tail = Utf8Tail(f.stderr_tail(), kMaxTailBytes),
              .parked = f.parked(),
              .tail_has_stdout = f.tail_has_stdout()};
  for (int i = 0; i < std::min(f.evidence_size(), kMaxEvidence); ++i) {
    out.evidence.push_back(Utf8Line(f.evidence(i), kMaxEvidenceBytes));
  }
  if (f.has_uptime_ms()) out.uptime = milliseconds(Between(f.uptime_ms(), 0, kMaxAgeUs / 1000));
  if (f.has_step()) out.step = f.step();
  return out;
}

std::vector<Failure> DecodeFailures(const google::protobuf::RepeatedPtrField<proto::Failure>& failures,
                                    TimePoint now) {
  std::vector<Failure> out;
  for (int i = 0; i < std::min(failures.size(), kMaxFailures); ++i) {
    out.push_back(DecodeFailure(failures[i], now));
  }
  return out;
}

proto::JobReport EncodeReport(const JobReport& report, TimePoint now) {
  proto::JobReport out;
  out.set_round(report.round.value());
  for (const JobReport::Group& group : report.groups) {
    proto::JobReport::Group& g = *out.add_groups();
    *g.mutable_first() = EncodeFailure(group.first, now);
    g.set_count(group.count);
    for (const Rank rank : group.ranks) g.add_ranks(rank.value());
  }
  out.set_more_failures(report.more_failures);
  for (const std::string& line : report.lost_nodes) out.add_lost_nodes(Utf8Head(line, kMaxTextBytes));
  out.set_outcome(Utf8Head(report.outcome, kMaxTextBytes));
  return out;
}

JobReport DecodeReport(const proto::JobReport& report, TimePoint now) {
  JobReport out{.round = Round(Between(report.round(), 0, INT32_MAX)),
                .groups = {},
                .more_failures = std::max(report.more_failures(), 0),
                .lost_nodes = {},
                .outcome = Utf8Line(report.outcome(), kMaxTextBytes)};
  for (const proto::JobReport::Group& group : report.groups()) {
    if (out.groups.size() == JobReport::kMaxGroups) break;
    JobReport::Group g{
        .first = DecodeFailure(group.first(), now), .count = std::max(group.count(), 1), .ranks = {}};
    for (const int64_t rank : group.ranks()) {
      if (g.ranks.size() < JobReport::kMaxRanks) g.ranks.emplace_back(Between(rank, 0, INT32_MAX));
    }
    out.groups.push_back(std::move(g));
  }
  for (const std::string& line : report.lost_nodes()) {
    if (out.lost_nodes.size() <= JobReport::kMaxLostNodes) {
      out.lost_nodes.push_back(Utf8Line(line, kMaxTextBytes));
    }
  }
  return out;
}

}  // namespace ddprun
