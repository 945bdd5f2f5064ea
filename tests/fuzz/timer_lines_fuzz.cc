// Parses arbitrary bytes as input from the watchdog's FIFO, and executes the parsed requests on a timer
// table.
//
// Invariants: no crash; splitting the input does not change its effect; at most one line is buffered; a
// parsed request has a valid pid and signal; every timer expires or is released.

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

struct Parsed {
  std::vector<TimerRequest> requests;
  std::vector<std::string> errors;
  bool operator==(const Parsed&) const = default;
};

Parsed Read(absl::string_view input, size_t piece) {
  Parsed parsed;
  TimerLines lines;
  const TimerLines::Handlers handlers = {
      .request = [&](const TimerRequest& request) { parsed.requests.push_back(request); },
      .error = [&](const absl::Status& why) { parsed.errors.emplace_back(why.message()); }};
  while (!input.empty()) {
    lines.Feed(input.substr(0, piece), handlers);
    input.remove_prefix(std::min(piece, input.size()));
    Check(lines.buffered_bytes() <= PIPE_BUF, "at most one line is buffered");
  }
  return parsed;
}

void Play(const std::vector<TimerRequest>& requests) {
  TimerTable table(kMaxTimers);
  for (const TimerRequest& r : requests) {
    Check(r.pid > 0, "the pid is valid");
    Check(r.signo >= 0 && r.signo <= SIGRTMAX, "the signal is valid or 0");
    if (r.releases()) {
      table.Release(r.pid, r.scope);
      continue;
    }
    const TimePoint deadline(milliseconds(static_cast<int64_t>(std::min(r.expires, 1e12))));
    const bool set = table.Set(r.pid, r.scope, deadline, r.signo).ok();
    Check(set || table.size() == kMaxTimers, "a timer is set unless the table is full");
    Check(table.size() <= kMaxTimers, "the table stays within its limit");
  }
  while (const std::optional<TimePoint> next = table.NextDeadline()) {
    const size_t before = table.size();
    const std::vector<ExpiredTimers> expired = table.Expire(*next);
    Check(!expired.empty() && table.size() < before, "due timers are removed");
    for (const ExpiredTimers& e : expired) Check(!table.Has(e.pid), "all timers of the process are removed");
  }
  Check(table.size() == 0, "every timer has a deadline");
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const Parsed parsed = Read(input, input.size() + 1);
  for (const size_t piece : {1, 7, 4096})
    Check(Read(input, piece) == parsed, "splitting the input does not change its effect");
  Play(parsed.requests);
  return 0;
}
