#include "tests/sim/golden.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/sim_world.h"

namespace ddprun::sim {
namespace {

constexpr absl::string_view kSeparator = "----\n";
constexpr size_t kContext = 2;

std::vector<absl::string_view> Lines(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

absl::StatusOr<Golden> ParseGolden(absl::string_view text) {
  const size_t separator = text.find(absl::StrCat("\n", kSeparator));
  if (separator == absl::string_view::npos) return absl::InvalidArgumentError("there is no line \"----\"");
  Golden golden;
  golden.head = std::string(text.substr(0, separator + 1));
  golden.expected = std::string(text.substr(separator + 1 + kSeparator.size()));
  ASSIGN_OR_RETURN(golden.script, ParseScript(golden.head));
  return golden;
}

std::string ToString(const Golden& golden) { return absl::StrCat(golden.head, kSeparator, golden.expected); }

std::string GoldenTrace(const Script& script) {
  std::string trace;
  TellScript(script, [&trace](TimePoint now, absl::string_view text) {
    const int64_t ms = (now - SimClock::kStart) / milliseconds(1);
    char time[32];
    std::snprintf(time, sizeof time, "%3lld.%03lld  ", static_cast<long long>(ms / 1000),
                  static_cast<long long>(ms % 1000));
    absl::StrAppend(&trace, time, text, "\n");
  });
  return trace;
}

std::string LineDiff(absl::string_view expected, absl::string_view actual) {
  if (expected == actual) return "";
  const std::vector<absl::string_view> a = Lines(expected), b = Lines(actual);
  // common[i][j]: length of the longest common subsequence of a[i..] and b[j..].
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::vector<std::pair<char, absl::string_view>> lines;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.emplace_back(' ', a[i++]);
      ++j;
    } else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1])) {
      lines.emplace_back('-', a[i++]);
    } else {
      lines.emplace_back('+', b[j++]);
    }
  }
  std::string diff;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t end = std::min(lines.size(), i + kContext + 1);
    const bool near = std::any_of(lines.begin() + (i > kContext ? i - kContext : 0), lines.begin() + end,
                                  [](const auto& line) { return line.first != ' '; });
    if (near) absl::StrAppend(&diff, std::string(1, lines[i].first), " ", lines[i].second, "\n");
  }
  return diff.empty() ? "only the final newline differs\n" : diff;
}

}  // namespace ddprun::sim
