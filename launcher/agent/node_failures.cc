#include "launcher/agent/node_failures.h"

#include <csignal>
#include <ctime>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "launcher/agent/failure_cause.h"
#include "launcher/report/after_effect.h"
#include "launcher/report/program_error.h"
#include "launcher/report/terminal_text.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

constexpr size_t kMaxFailures = 64;
constexpr size_t kMaxTails = 4;
constexpr size_t kTailLines = 20;
constexpr size_t kMaxTailBytes = 8 << 10;
constexpr size_t kMaxLineBytes = 2 << 10;

// As one line that protobuf takes.
std::string Line(absl::string_view text) { return Utf8Head(CleanLine(text), kMaxLineBytes); }

// The last lines of `text`.
std::string Tail(absl::string_view text) {
  std::vector<std::string> lines = CleanLines(text);
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  return Utf8Tail(absl::StrJoin(lines, "\n"), kMaxTailBytes);
}

bool Obeyed(const ExitInfo& exit, int told) {
  if (const auto* signaled = std::get_if<Signaled>(&exit)) {
    return signaled->signo == told || signaled->signo == SIGTERM;
  }
  if (const auto* exited = std::get_if<Exited>(&exit)) return exited->code == 128 + told;
  const auto* never = std::get_if<NeverStarted>(&exit);
  return never != nullptr && absl::IsCancelled(never->status);
}

}  // namespace

NodeFailures::NodeFailures(std::string host, std::string role)
    : host_(std::move(host)), role_(std::move(role)) {}

void NodeFailures::BeginRound(const Assignment& assignment) {
  assignment_ = assignment;
  ends_.clear();
  records_.clear();
  evidence_.clear();
}

size_t NodeFailures::Add(const End& end) {
  ends_.push_back(end);
  records_.push_back(MakeFailureRecord({.rank = Rank(assignment_.first_rank.value() + end.local_rank.value()),
                                        .local_rank = end.local_rank,
                                        .host = host_,
                                        .pid = end.pid,
                                        .exit = end.exit,
                                        .noticed = std::time(nullptr)}));
  evidence_.emplace_back();
  return ends_.size() - 1;
}

void NodeFailures::AddError(size_t index, WorkerError error, const std::string& error_file) {
  AddWorkerError(std::move(error), error_file, records_[index]);
}

void NodeFailures::Complete(const Afterwards& afterwards) {
  for (size_t i = 0; i < ends_.size(); ++i) {
    records_[i].stderr_tail = afterwards.stderr_tail(ends_[i].local_rank);
    const auto* signaled = std::get_if<Signaled>(&ends_[i].exit);
    if (signaled != nullptr && signaled->signo == SIGKILL && ends_[i].told != SIGKILL) {
      evidence_[i] = afterwards.evidence_of_sigkill(ends_[i].pid);
    }
  }
}

proto::Failure NodeFailures::Encode(LocalRank local_rank, TimePoint now) const {
  size_t i = ends_.size() - 1;
  while (i > 0 && ends_[i].local_rank != local_rank) --i;
  return Encode(i, now);
}

std::vector<proto::Failure> NodeFailures::EncodeAll(TimePoint now) const {
  std::vector<proto::Failure> failures;
  std::set<std::tuple<int, int, std::string>> seen;
  for (size_t i = 0; i < ends_.size() && failures.size() < kMaxFailures; ++i) {
    if (!FailedByItself(i)) continue;
    proto::Failure failure = Encode(i, now);
    const bool is_new = seen.emplace(failure.exit_code(), failure.signal(), failure.exception()).second;
    if (!is_new || seen.size() > kMaxTails) failure.clear_stderr_tail();
    failures.push_back(std::move(failure));
  }
  return failures;
}

proto::Failure NodeFailures::Encode(size_t i, TimePoint now) const {
  const End& end = ends_[i];
  const FailureRecord& record = records_[i];
  proto::Failure failure;
  failure.set_rank(record.rank.value());
  failure.set_local_rank(static_cast<int>(end.local_rank.value()));
  failure.set_host(host_);
  failure.set_role(role_);
  failure.set_pid(end.pid);
  if (const auto* exited = std::get_if<Exited>(&end.exit)) failure.set_exit_code(exited->code);
  if (const auto* signaled = std::get_if<Signaled>(&end.exit)) failure.set_signal(signaled->signo);
  if (const auto* stuck = std::get_if<Stuck>(&end.exit)) {
    failure.set_stuck(true);
    failure.add_evidence(Line(stuck->where));
  }
  failure.set_cause(Line(FailureCause(record.rank, end.local_rank, host_, end.exit, end.progress)));
  failure.set_exception(ExceptionOf(i));
  failure.set_stderr_tail(Tail(record.stderr_tail));
  for (const std::string& line : evidence_[i]) failure.add_evidence(Line(line));
  failure.set_consequence(IsAfterEffect(end.exit, failure.exception(), record.stderr_tail));
  failure.set_age_us(std::chrono::duration_cast<std::chrono::microseconds>(now - end.when).count());
  failure.set_uptime_ms(ToMillis(end.uptime));
  if (end.step) failure.set_step(*end.step);
  return failure;
}

bool NodeFailures::FailedByItself(size_t i) const {
  const End& end = ends_[i];
  if (!end.told) return true;
  if (Obeyed(end.exit, *end.told)) return false;
  return !std::holds_alternative<Exited>(end.exit) || !ExceptionOf(i).empty();
}

std::string NodeFailures::ExceptionOf(size_t i) const {
  const FailureRecord& record = records_[i];
  if (!record.worker_error) {
    // A process does not see SIGKILL coming: an exception among its last lines is another matter.
    const auto* signaled = std::get_if<Signaled>(&record.exit);
    if (signaled != nullptr && signaled->signo == SIGKILL) return "";
    return Line(ProgramError(record.stderr_tail));
  }
  if (const std::string error = ProgramError(record.worker_error->text); !error.empty()) return Line(error);
  // No traceback, but a message.
  const std::vector<std::string> lines =
      CleanLines(absl::string_view(record.worker_error->text).substr(0, 2 * kMaxLineBytes));
  return lines.empty() ? "" : Line(lines[0]);
}

}  // namespace ddprun
