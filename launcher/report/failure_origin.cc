#include "launcher/report/failure_origin.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// The number of lines of stderr that are searched. Earlier lines may contain errors from which the program
// recovered.
constexpr size_t kLastLines = 20;

// Matches a line that contains all of these strings in this order.
using Pattern = std::vector<absl::string_view>;

const std::vector<Pattern>& Patterns() {
  static const auto* const patterns = new std::vector<Pattern>{
      // The worker SDK's marker, followed by SDK errors that programs may print without the marker. The SDK
      // does not write an error file for such a failure, because torchrun, which may have started the worker,
      // considers the failure with the earliest error file to be the root cause.
      {"(the cause is elsewhere)"},
      {"rank ", " of round ", " is gone"},
      {"rank ", " of round ", " has left"},
      {"rank ", " of round ", " gave up operation "},
      {"rank ", " of round ", " gave up message "},
      {"rank ", " of round ", " gave up: "},
      {"no answer from rank ", " of round ", " for "},
      {"rank ", " of round ", " did not appear within "},
      // System errors that gloo, NCCL, MPI and stores report.
      {"Connection reset by peer"},
      {"Connection closed by peer"},
      {"Connection closed by remote peer"},
      {"Broken pipe"},
      // gloo
      {"Timed out waiting ", "ms for ", " operation to complete"},
      {"Connect timeout ["},
      // PyTorch's process groups
      {"failed to pass monitoredBarrier"},
      {"successfully reached monitoredBarrier, but received errors while waiting"},
      {"NCCL communicator was aborted"},
      {"Watchdog caught collective operation timeout"},
      {"Received a dump signal due to a collective timeout from"},
      {"Some NCCL operations have failed or timed out"},
      // NCCL
      {"ncclRemoteError"},
      {"remote process exited or there was a network error"},
      {"NCCL WARN", "Connection refused"},
      // PyTorch's store
      {"failed to recv, got 0 bytes"},
      {"Socket Timeout"},
      {"wait timeout after ", "ms, keys: "},
      {"The client socket has timed out after "},
  };
  return *patterns;
}

bool Matches(absl::string_view line, const Pattern& pattern) {
  for (const absl::string_view part : pattern) {
    const size_t at = line.find(part);
    if (at == absl::string_view::npos) return false;
    line.remove_prefix(at + part.size());
  }
  return true;
}

bool MatchesAny(absl::string_view line) {
  return std::any_of(Patterns().begin(), Patterns().end(),
                     [line](const Pattern& p) { return Matches(line, p); });
}

// True if the worker ended because of `last_signal` or SIGTERM, or if its start was cancelled.
bool Obeyed(const ExitInfo& exit, int last_signal) {
  if (EndedBySignal(exit, last_signal) || EndedBySignal(exit, SIGTERM)) return true;
  if (const auto* exited = std::get_if<Exited>(&exit)) return exited->code == 128 + last_signal;
  const auto* never = std::get_if<NeverStarted>(&exit);
  return never != nullptr && absl::IsCancelled(never->status);
}

// True if the program ended by itself: it exited or called abort().
bool EndedItself(const ExitInfo& exit) {
  return std::holds_alternative<Exited>(exit) || EndedBySignal(exit, SIGABRT);
}

bool FollowsAnother(const ExitInfo& exit, absl::string_view exception, absl::string_view stderr_tail) {
  if (EndedBySignal(exit, SIGPIPE)) return true;
  if (!EndedItself(exit)) return false;
  if (!exception.empty()) return MatchesAny(exception);
  const std::vector<absl::string_view> lines = absl::StrSplit(stderr_tail, '\n', absl::SkipWhitespace());
  const auto last = lines.end() - static_cast<ptrdiff_t>(std::min(lines.size(), kLastLines));
  return std::any_of(last, lines.end(), MatchesAny);
}

}  // namespace

FailureOrigin OriginOf(const ExitInfo& exit, std::optional<int> last_signal, absl::string_view exception,
                       absl::string_view stderr_tail) {
  const bool silent_exit = std::holds_alternative<Exited>(exit) && exception.empty();
  if (last_signal && (silent_exit || Obeyed(exit, *last_signal))) return FailureOrigin::kStopped;
  return FollowsAnother(exit, exception, stderr_tail) ? FailureOrigin::kFollowsAnother : FailureOrigin::kOwn;
}

}  // namespace ddprun
