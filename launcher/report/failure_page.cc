#include "launcher/report/failure_page.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/exit_info.h"
#include "base/failure.h"
#include "base/text.h"
#include "launcher/report/terminal_text.h"

namespace ddprun {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kStep = 2;  // columns per level of indentation
constexpr char kStderrMark[] = "| ";
constexpr size_t kMaxRows = 3;         // maximum number of rows for a wrapped line of stderr
constexpr size_t kFewStderrLines = 5;  // maximum number of stderr lines for failures other than the first

// True for a line such as `  File "/job/train.py", line 4, in <module>`. Such lines are not wrapped, so that
// they remain searchable and clickable.
bool IsSourceLocation(absl::string_view line) {
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "File \"");
}

// Collects the lines of the page and wraps them to its width.
class Page {
 public:
  void Rule(char c) { absl::StrAppend(&text_, std::string(kWidth, c), "\n"); }

  // Adds a line and wraps it. Continuation rows are indented by one more level.
  void Line(size_t indent, absl::string_view line) {
    const std::string clean = CleanLine(line);
    bool first = true;
    for (const std::string& row : Wrap(clean, kWidth - (indent + 1) * kStep)) {
      Row(indent + (first ? 0 : 1), row);
      first = false;
    }
  }

  void Stderr(size_t indent, absl::string_view tail, size_t max_lines) {
    std::vector<std::string> lines = CleanLines(tail);
    if (lines.size() > max_lines) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(max_lines));
    for (const std::string& line : lines) {
      if (IsSourceLocation(line)) {
        Row(indent, absl::StrCat(kStderrMark, line));
        continue;
      }
      std::vector<std::string> rows = Wrap(line, kWidth - indent * kStep - sizeof kStderrMark - 3);
      if (rows.size() > kMaxRows) {
        rows.resize(kMaxRows);
        rows.back() += " ...";
      }
      for (const std::string& row : rows) Row(indent, absl::StrCat(kStderrMark, row));
    }
  }

  std::string Take() { return std::move(text_); }

 private:
  void Row(size_t indent, absl::string_view row) {
    const std::string line = absl::StrCat(std::string(indent * kStep, ' '), row);
    absl::StrAppend(&text_, absl::StripTrailingAsciiWhitespace(line), "\n");
  }

  std::string text_;
};

std::string Plural(int n, absl::string_view what) { return absl::StrCat(n, " ", what, n == 1 ? "" : "s"); }

bool NeverRan(const Failure& f) { return std::holds_alternative<NeverStarted>(f.exit); }
bool IsStuck(const Failure& f) { return std::holds_alternative<Stuck>(f.exit); }
bool IsHung(const Failure& f) { return std::holds_alternative<Hung>(f.exit); }
// A hung round in which no rank is behind: `f` is a failure of no worker.
bool NamesNoRank(const Failure& f) { return IsHung(f) && !std::get<Hung>(f.exit).behind; }

std::string How(const Failure& f) {
  if (NeverRan(f)) return "never started";
  if (IsStuck(f)) return "stuck";
  if (IsHung(f)) return "behind the others, which wait";
  if (f.parked) return "has parked, and can take part in another round";
  const auto* signaled = std::get_if<Signaled>(&f.exit);
  return signaled != nullptr ? SignalName(signaled->signo) : ToString(f.exit);
}

std::string When(const Failure& f) {
  return absl::StrCat(f.uptime ? absl::StrCat(" after ", InLargestUnits(*f.uptime)) : "",
                      f.step ? absl::StrCat(", at step ", *f.step) : "");
}

std::string Who(const Failure& f) {
  return absl::StrCat("rank ", f.rank.value(), " (local rank ", f.local_rank.value(), ") on ", f.host);
}

// What has happened to the worker, in one line.
std::string NewsOf(const Failure& f) {
  if (NamesNoRank(f)) return absl::StrCat("no worker is behind the others", When(f));
  if (NeverRan(f)) return absl::StrCat(Who(f), " never started");
  if (IsStuck(f)) return absl::StrCat(Who(f), " was found stuck", When(f));
  if (IsHung(f)) return absl::StrCat(Who(f), " has not ended; its round stood still", When(f));
  return absl::StrCat(Who(f), " ended", When(f));
}

void AddSameRanks(const JobReport::Group& group, Page& page) {
  if (group.count <= 1) return;
  std::vector<Rank> others = group.ranks;
  std::erase(others, group.first.rank);
  const bool all = static_cast<int>(others.size()) >= group.count - 1;
  page.Line(1, absl::StrCat(Plural(group.count - 1, "more rank"),
                            " failed the same way: ", FormatRanks(others), all ? "" : ", ..."));
}

void AddError(const Failure& f, Page& page) {
  // A worker that never ran has no exception; `cause` has the reason.
  const std::string& error = f.exception.empty() && NeverRan(f) ? f.cause : f.exception;
  if (!error.empty()) page.Line(1, error);
  if (IsStuck(f)) page.Line(1, absl::StrCat("evidence: ", std::get<Stuck>(f.exit).where));
  if (IsHung(f)) page.Line(1, f.cause);
  for (const std::string& line : f.evidence) page.Line(1, absl::StrCat("evidence: ", line));
}

void AddStderr(const Failure& f, size_t max_lines, Page& page) {
  if (CleanLines(f.stderr_tail).empty()) return;
  page.Line(
      1, absl::StrCat("last lines of its ", f.tail_has_stdout ? "output" : "stderr",
                      EndedBySignal(f.exit, SIGKILL) ? " before SIGKILL, not necessarily the cause:" : ":"));
  page.Stderr(2, f.stderr_tail, max_lines);
}

void AddGroup(const JobReport::Group& group, bool is_cause, Page& page) {
  const Failure& f = group.first;
  page.Line(0, NamesNoRank(f) ? absl::StrCat("no worker is behind the others", When(f))
                              : absl::StrCat(Who(f), ": ", How(f), When(f)));
  AddError(f, page);
  if (f.origin == FailureOrigin::kFollowsAnother)
    page.Line(1, "an after-effect of another failure, according to its error");
  AddSameRanks(group, page);
  if (is_cause) {
    AddStderr(f, std::numeric_limits<size_t>::max(), page);
  } else if (f.origin == FailureOrigin::kOwn && f.exception.empty()) {
    AddStderr(f, kFewStderrLines, page);
  }
}

void AddLostNodes(const JobReport& report, Page& out) {
  if (report.lost_nodes.empty()) return;
  out.Rule('-');
  out.Line(0, "Nodes that left or were lost:");
  for (const std::string& node : report.lost_nodes) out.Line(1, node);
}

std::string Title(const JobReport& report, bool node_is_cause) {
  const std::string round = absl::StrCat("Round ", report.round.value(), " ended: ");
  if (node_is_cause)
    return absl::StrCat(round, Plural(static_cast<int>(report.lost_nodes.size()), "node"), " lost");
  if (report.groups.empty()) return absl::StrCat(round, "no worker failed");
  const Failure& f = report.groups[0].first;
  if (NamesNoRank(f)) return absl::StrCat(round, "it stood still");
  if (IsHung(f)) return absl::StrCat(round, "it stood still behind rank ", f.rank.value(), " on ", f.host);
  const bool alone = report.groups.size() == 1 && report.groups[0].count == 1 && report.more_failures == 0;
  return absl::StrCat(round, "rank ", f.rank.value(), " on ", f.host, alone ? " failed" : " failed first");
}

// True if `shown` contains every line of `text`.
bool IsShown(absl::string_view text, absl::string_view shown) {
  const std::vector<std::string> lines = CleanLines(text);
  return std::all_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return absl::StrContains(shown, absl::StripAsciiWhitespace(line));
  });
}

}  // namespace

std::string FormatFailurePage(const JobReport& report) {
  Page out;
  // If all failures are after-effects, the lost nodes caused them.
  const bool node_is_cause =
      !report.lost_nodes.empty() &&
      (report.groups.empty() || report.groups[0].first.origin == FailureOrigin::kFollowsAnother);
  out.Rule('=');
  out.Line(0, Title(report, node_is_cause));
  if (node_is_cause) AddLostNodes(report, out);
  for (size_t i = 0; i < report.groups.size(); ++i) {
    if (i < 2) out.Rule('-');
    if (i == 1) out.Line(0, "Also failed:");
    AddGroup(report.groups[i], i == 0, out);
  }
  if (report.more_failures > 0)
    out.Line(0, absl::StrCat("and ", Plural(report.more_failures, "more failure")));
  if (!node_is_cause) AddLostNodes(report, out);
  if (!report.outcome.empty()) {
    out.Rule('-');
    out.Line(0, absl::StrCat("Next: ", report.outcome));
  }
  out.Rule('=');
  return out.Take();
}

std::string FormatWhatIsNew(const JobReport& report, absl::string_view shown) {
  JobReport::Group group = report.groups[0];
  Failure& f = group.first;
  // A traceback shows each exception of a chain separately.
  if (IsShown(absl::StrReplaceAll(f.exception, {{", from ", "\n"}, {", while handling ", "\n"}}), shown)) {
    f.exception.clear();
  }
  if (IsShown(f.stderr_tail, shown)) f.stderr_tail.clear();
  Page out;
  out.Line(0, NewsOf(f));
  if (!NeverRan(f) || !IsShown(f.cause, shown)) AddError(f, out);
  AddSameRanks(group, out);
  AddStderr(f, std::numeric_limits<size_t>::max(), out);
  for (const std::string& node : report.lost_nodes) out.Line(0, absl::StrCat("Lost: ", node));
  if (!report.outcome.empty()) out.Line(0, absl::StrCat("Next: ", report.outcome));
  return out.Take();
}

std::string FormatRanks(const std::vector<Rank>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1].value() == ranks[last].value() + 1) ++last;
    if (last < i + 2) last = i;  // Two consecutive ranks are not written as a range: "8, 9".
    parts.push_back(last == i ? absl::StrCat(ranks[i].value())
                              : absl::StrCat(ranks[i].value(), "-", ranks[last].value()));
    i = last + 1;
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace ddprun
