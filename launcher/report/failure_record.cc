#include "launcher/report/failure_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/exit_info.h"

namespace ddprun {
namespace {

// Returns the message for a worker without an error file. For exits and signals, the text is torchrun's.
std::string MessageOf(const Failure& end) {
  if (const auto* never = std::get_if<NeverStarted>(&end.exit)) return std::string(never->status.message());
  if (const auto* stuck = std::get_if<Stuck>(&end.exit)) {
    return absl::StrCat("The worker has not ended: it is ", stuck->where);
  }
  if (const auto* hung = std::get_if<Hung>(&end.exit)) {
    return absl::StrCat("The worker has not ended: its round has stood still",
                        hung->finding.empty() ? "" : ": ", hung->finding);
  }
  if (const auto* signaled = std::get_if<Signaled>(&end.exit)) {
    return absl::StrCat("Signal ", signaled->signo, " (", SignalName(signaled->signo), ") received by PID ",
                        end.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

// Returns the time of the failure for an error file with this timestamp (see Failure::failed_at).
TimePoint FailedAt(const FailureRecord& record, int64_t timestamp) {
  const absl::Time end_of_second = absl::FromUnixSeconds(timestamp) + absl::Seconds(1);
  const Duration earlier = absl::ToChronoNanoseconds(record.noticed - end_of_second);
  const bool was_alive = earlier <= record.failure.uptime.value_or(Duration::zero());
  return earlier > Duration::zero() && was_alive ? record.failure.failed_at - earlier
                                                 : record.failure.failed_at;
}

}  // namespace

FailureRecord MakeFailureRecord(Failure failure, absl::Time noticed) {
  std::string message = MessageOf(failure);
  return {.failure = std::move(failure),
          .noticed = noticed,
          .timestamp = absl::ToUnixSeconds(noticed),
          .message = std::move(message)};
}

void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record) {
  record.failure.failed_at = FailedAt(record, error.timestamp);
  record.error_file = error_file;
  record.timestamp = error.timestamp;
  if (!error.plain) {
    record.message = absl::StrReplaceAll(error.text, {{"\n", "\n  "}});
  } else if (!error.text.empty()) {
    record.message = error.text;
  }
  record.worker_error = std::move(error);
}

size_t RootCause(const std::vector<FailureRecord>& failures) {
  const auto first = std::min_element(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return Precedes(a.failure, b.failure);
  });
  return static_cast<size_t>(first - failures.begin());
}

}  // namespace ddprun
