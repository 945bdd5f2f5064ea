#include "launcher/workers/node_failures.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_info.h"
#include "launcher/report/failure_origin.h"
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

// Returns `text` as one line of at most kMaxLineBytes bytes. The line is valid UTF-8, as protobuf requires.
std::string Line(absl::string_view text) { return Utf8Head(CleanLine(text), kMaxLineBytes); }

std::string Tail(absl::string_view text) {
  std::vector<std::string> lines = CleanLines(text);
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  return Utf8Tail(absl::StrJoin(lines, "\n"), kMaxTailBytes);
}

// Returns the error that the program itself reported, as one line; empty if there is none.
std::string ExceptionOf(const FailureRecord& record) {
  if (!record.worker_error) {
    // SIGKILL cannot be caught, so an exception in the tail of stderr is not the cause.
    if (EndedBySignal(record.failure.exit, SIGKILL)) return "";
    return Line(ProgramError(record.failure.stderr_tail));
  }
  if (const std::string error = ProgramError(record.worker_error->text); !error.empty()) return Line(error);
  // The text has no traceback, so use its first line.
  const std::vector<std::string> lines =
      CleanLines(absl::string_view(record.worker_error->text).substr(0, 2 * kMaxLineBytes));
  return lines.empty() ? "" : Line(lines[0]);
}

// Returns `failure` in the form that is sent to the coordinator: with a shortened stderr tail.
Failure ToSend(Failure failure) {
  failure.stderr_tail = Tail(failure.stderr_tail);
  return failure;
}

}  // namespace

NodeFailures::NodeFailures(std::string host, std::string role)
    : host_(std::move(host)), role_(std::move(role)) {}

void NodeFailures::BeginRound(const Assignment& assignment) {
  assignment_ = assignment;
  records_.clear();
}

size_t NodeFailures::Add(Failure end, const Notice& notice) {
  end.rank = Rank(assignment_.first_rank.value() + end.local_rank.value());
  end.host = host_;
  end.role = role_;
  end.cause = Line(FailureCause(end, notice.progress));
  FailureRecord& record = records_.emplace_back(MakeFailureRecord(std::move(end), notice.time));
  record.last_signal = notice.last_signal;
  SetExceptionAndOrigin(record);
  return records_.size() - 1;
}

void NodeFailures::AddParked(Failure end, absl::Time time, const std::string& why) {
  end.parked = true;
  end.exception = Line(why);
  FailureRecord& record = records_[Add(std::move(end), {.time = time})];
  record.message = record.failure.exception;
}

void NodeFailures::AddError(size_t index, WorkerError error, const std::string& error_file) {
  AddWorkerError(std::move(error), error_file, records_[index]);
  SetExceptionAndOrigin(records_[index]);
}

void NodeFailures::Complete(const Afterwards& afterwards) {
  for (FailureRecord& record : records_) {
    Failure& failure = record.failure;
    if (failure.parked) continue;  // it is running, and its output does not explain why it has parked
    failure.stderr_tail = afterwards.stderr_tail(failure.local_rank);
    failure.tail_has_stdout = afterwards.tail_has_stdout(failure.local_rank);
    failure.evidence.clear();
    if (EndedBySignal(failure.exit, SIGKILL) && record.last_signal != SIGKILL) {
      for (const std::string& line : afterwards.evidence_of_sigkill(static_cast<pid_t>(failure.pid))) {
        failure.evidence.push_back(Line(line));
      }
    }
    for (const std::string& line : afterwards.evidence_of_gpus(failure)) {
      failure.evidence.push_back(Line(line));
    }
    SetExceptionAndOrigin(record);
  }
}

Failure NodeFailures::Of(LocalRank local_rank) const {
  size_t i = records_.size() - 1;
  while (i > 0 && records_[i].failure.local_rank != local_rank) --i;
  return ToSend(records_[i].failure);
}

std::vector<Failure> NodeFailures::All() const {
  std::vector<const Failure*> order;
  for (const FailureRecord& record : records_) {
    if (record.failure.origin != FailureOrigin::kStopped) order.push_back(&record.failure);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Failure* a, const Failure* b) { return Precedes(*a, *b); });
  if (order.size() > kMaxFailures) order.resize(kMaxFailures);
  std::vector<Failure> failures;
  std::set<std::tuple<size_t, int, std::string>> seen;
  for (const Failure* failure : order) {
    failures.push_back(ToSend(*failure));
    const bool is_new =
        seen.emplace(failure->exit.index(), TorchExitCode(failure->exit), failure->exception).second;
    if (!is_new || seen.size() > kMaxTails) failures.back().stderr_tail.clear();
  }
  return failures;
}

void NodeFailures::SetExceptionAndOrigin(FailureRecord& record) const {
  Failure& failure = record.failure;
  if (!failure.parked) failure.exception = ExceptionOf(record);
  failure.origin = OriginOf(failure.exit, record.last_signal, failure.exception, failure.stderr_tail);
}

std::string FailureCause(const Failure& failure, absl::string_view progress) {
  const std::string who = absl::StrCat("rank ", failure.rank.value(), " (local_rank ",
                                       failure.local_rank.value(), ") on ", failure.host);
  if (failure.parked) return absl::StrCat(who, " has parked: ", failure.exception);
  return absl::StrCat(who, " failed: ", ToString(failure.exit), progress.empty() ? "" : ", ", progress);
}

}  // namespace ddprun
