#include "launcher/report/failure_report.h"

#include <algorithm>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_info.h"

namespace ddprun {
namespace {

constexpr size_t kMaxWidth = 60;

// Returns the length of the longest line of UTF-8 text, in code points.
size_t Width(absl::string_view text) {
  size_t widest = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto length =
        std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });
    widest = std::max<size_t>(widest, length);
  }
  return widest;
}

std::string FormatFailure(size_t index, const FailureRecord& record, absl::TimeZone zone) {
  const Failure& failure = record.failure;
  const auto* signaled = std::get_if<Signaled>(&failure.exit);
  // clang-format off
  return absl::StrCat(
      "[", index, "]:\n",
      "  time      : ", absl::FormatTime("%Y-%m-%d_%H:%M:%S", absl::FromUnixSeconds(record.timestamp), zone), "\n",
      "  host      : ", failure.host, "\n",
      "  rank      : ", failure.rank.value(), " (local_rank: ", failure.local_rank.value(), ")\n",
      "  exitcode  : ", TorchExitCode(failure.exit), " (pid: ", failure.pid, ") ",
      signaled != nullptr ? absl::StrCat(" (", SignalName(signaled->signo), ")") : "", "\n",
      "  error_file: ", record.error_file.empty() ? "<N/A>" : record.error_file, "\n",
      "  traceback : ", record.message);
  // clang-format on
}

}  // namespace

std::string FormatFailureReport(absl::string_view name, const std::vector<FailureRecord>& failures,
                                absl::TimeZone zone) {
  const std::string title = absl::StrCat(name, " FAILED");
  const size_t root = RootCause(failures);
  std::string root_text;
  std::vector<std::string> others;
  size_t width = Width(title);
  for (size_t i = 0; i < failures.size(); ++i) {
    std::string text = FormatFailure(i, failures[i], zone);
    width = std::max(width, Width(text));
    if (i == root) {
      root_text = std::move(text);
    } else {
      others.push_back(std::move(text));
    }
  }
  if (others.empty()) others.emplace_back("  <NO_OTHER_FAILURES>");
  width = std::min(width, kMaxWidth);
  const std::string border(width, '=');
  const std::string section(width, '-');
  return absl::StrCat("\n", border, "\n", title, "\n", section, "\nFailures:\n", absl::StrJoin(others, "\n"),
                      "\n", section, "\nRoot Cause (first observed failure):\n", root_text, "\n", border,
                      "\n");
}

std::string FormatStderrTail(const std::vector<FailureRecord>& failures, size_t max_lines) {
  const Failure& root = failures[RootCause(failures)].failure;
  std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(root.stderr_tail, "\n"), '\n');
  if (root.stderr_tail.empty() || max_lines == 0) return "";
  if (lines.size() > max_lines) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(max_lines));
  return absl::StrCat("Last lines of ", root.tail_has_stdout ? "output" : "stderr", " of rank ",
                      root.rank.value(), " (local_rank: ", root.local_rank.value(), ", host: ", root.host,
                      ")",
                      EndedBySignal(root.exit, SIGKILL) ? " before SIGKILL, not necessarily the cause" : "",
                      ":\n  ", absl::StrJoin(lines, "\n  "), "\n");
}

}  // namespace ddprun
