#include "launcher/report/failure_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun {
namespace {

// For a worker that said nothing itself. The words for exits and signals are torchrun's.
std::string MessageOf(const WorkerEnd& end) {
  if (const auto* never = std::get_if<NeverStarted>(&end.exit)) return std::string(never->status.message());
  if (const auto* stuck = std::get_if<Stuck>(&end.exit)) {
    return absl::StrCat("It has not ended: it is ", stuck->where);
  }
  if (const auto* signaled = std::get_if<Signaled>(&end.exit)) {
    return absl::StrCat("Signal ", signaled->signo, " (", SignalName(signaled->signo), ") received by PID ",
                        end.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

}  // namespace

FailureRecord MakeFailureRecord(const WorkerEnd& end) {
  return {.rank = end.rank,
          .local_rank = end.local_rank,
          .host = end.host,
          .pid = end.pid,
          .exit = end.exit,
          .timestamp = end.noticed,
          .message = MessageOf(end),
          .error_file = {}};
}

void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record) {
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
  const auto first = std::min_element(failures.begin(), failures.end(),
                                      [](const auto& a, const auto& b) { return a.timestamp < b.timestamp; });
  return static_cast<size_t>(first - failures.begin());
}

}  // namespace ddprun
