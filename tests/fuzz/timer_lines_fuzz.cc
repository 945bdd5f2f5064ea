// Any bytes at all out of the watchdog's FIFO, and the timers that they set.
//
// Whatever they are: nothing crashes; pieces have the effect of the whole; no more is kept than a line may be
// long; what is understood names a process and a signal that there may be; and every timer expires or goes.

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/monitor/timer_requests.h"
#include "launcher/monitor/timer_table.h"

namespace ddprun {
namespace {

constexpr size_t kMaxTimers = 16;

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

struct Heard {
  std::vector<TimerRequest> requests;
  std::vector<std::string> errors;
  bool operator==(const Heard&) const = default;
};

Heard Read(absl::string_view input, size_t piece) {
  Heard heard;
  TimerLines lines;
  const TimerLines::Handlers handlers = {
      .request = [&](const TimerRequest& request) { heard.requests.push_back(request); },
      .error = [&](const absl::Status& why) { heard.errors.emplace_back(why.message()); }};
  while (!input.empty()) {
    lines.Feed(input.substr(0, piece), handlers);
    input.remove_prefix(std::min(piece, input.size()));
    Check(lines.buffered_bytes() <= PIPE_BUF, "no more is kept than a line");
  }
  return heard;
}

void Play(const std::vector<TimerRequest>& requests) {
  TimerTable table(kMaxTimers);
  for (const TimerRequest& r : requests) {
    Check(r.pid > 0, "it is of a process");
    Check(r.signo >= 0 && r.signo <= SIGRTMAX, "its signal is one, or none");
    if (r.releases()) {
      table.Release(r.pid, r.scope);
      continue;
    }
    const TimePoint deadline(milliseconds(static_cast<int64_t>(std::min(r.expires, 1e12))));
    const bool set = table.Set(r.pid, r.scope, deadline, r.signo).ok();
    Check(set || table.size() == kMaxTimers, "it is set while there is room");
    Check(table.size() <= kMaxTimers, "and no more than that");
  }
  while (const std::optional<TimePoint> next = table.NextDeadline()) {
    const size_t before = table.size();
    const std::vector<ExpiredTimers> expired = table.Expire(*next);
    Check(!expired.empty() && table.size() < before, "what is due goes");
    for (const ExpiredTimers& e : expired) Check(!table.Has(e.pid), "with all of its process");
  }
  Check(table.size() == 0, "nothing is left without a deadline");
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const Heard heard = Read(input, input.size() + 1);
  for (const size_t piece : {1, 7, 4096})
    Check(Read(input, piece) == heard, "pieces are as good as the whole");
  Play(heard.requests);
  return 0;
}
