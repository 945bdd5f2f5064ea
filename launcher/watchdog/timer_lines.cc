#include "launcher/watchdog/timer_lines.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

void TimerLines::Feed(absl::string_view bytes, const Handlers& handlers) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const absl::string_view piece = bytes.substr(0, end);
    if (!too_long_ && line_.size() + piece.size() > PIPE_BUF) {
      too_long_ = true;
      line_.clear();
      handlers.error(absl::InvalidArgumentError(
          absl::StrCat("it is longer than ", PIPE_BUF, " bytes: the text of a timer's scope is too long")));
    }
    if (!too_long_) line_.append(piece.data(), piece.size());
    if (end == bytes.size()) return;
    bytes.remove_prefix(end + 1);
    EndOfLine(handlers);
  }
}

void TimerLines::EndOfLine(const Handlers& handlers) {
  const std::string line = std::exchange(line_, {});
  if (std::exchange(too_long_, false) || line.empty()) return;
  absl::StatusOr<TimerRequest> request = ParseTimerRequest(line);
  if (!request.ok()) {
    handlers.error(request.status());
    const size_t last = line.rfind('{');
    if (last == 0 || last == std::string::npos) return;
    request = ParseTimerRequest(absl::string_view(line).substr(last));
    if (!request.ok()) return;
  }
  handlers.request(*request);
}

}  // namespace ddprun
