#include "launcher/report/python_exception.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

constexpr absl::string_view kHeader = "Traceback (most recent call last):";
constexpr absl::string_view kGroupHeader = "+ Exception Group ";
// Precedes the header if the traceback of a data loader's process is part of another exception's message.
constexpr absl::string_view kOriginal = "Original ";
constexpr absl::string_view kFrame = "  File \"";
constexpr absl::string_view kFrom = "The above exception was the direct cause of the following exception:";
constexpr absl::string_view kWhile = "During handling of the above exception, another exception occurred:";
// Maximum number of unrelated lines, for example from another thread, between a traceback's last frame and
// its exception.
constexpr int kMaxStrayLines = 5;

using Lines = std::vector<absl::string_view>;

// The beginning of a traceback.
struct Beginning {
  std::string prefix;  // prefix of all lines of the traceback
  bool group = false;  // the traceback belongs to an exception group
};

// Returns the offset in `line` of a frame such as `  File "x.py", line 3, in f`; nullopt if there is none.
// The frame of a syntax error has no function.
std::optional<size_t> FindFrame(absl::string_view line) {
  const size_t at = line.find(kFrame);
  if (at == absl::string_view::npos) return std::nullopt;
  const size_t number = line.find("\", line ", at);
  if (number == absl::string_view::npos) return std::nullopt;
  absl::string_view rest = line.substr(number + 8);
  while (!rest.empty() && absl::ascii_isdigit(rest[0])) rest.remove_prefix(1);
  if (!rest.empty() && !absl::StartsWith(rest, ", in ")) return std::nullopt;
  return at;
}

std::optional<Beginning> FindBeginning(absl::string_view line) {
  if (const size_t at = line.find(kHeader); at != absl::string_view::npos) {
    absl::string_view before = line.substr(0, at);
    if (absl::ConsumeSuffix(&before, kGroupHeader)) return Beginning{absl::StrCat(before, "| "), true};
    absl::ConsumeSuffix(&before, kOriginal);
    return Beginning{std::string(before)};
  }
  if (const auto at = FindFrame(line)) return Beginning{std::string(line.substr(0, *at))};
  return std::nullopt;
}

// Returns `line` without `prefix`; nullopt if `line` does not begin with `prefix`. The trailing blanks of the
// prefix may be missing in an otherwise empty line.
std::optional<absl::string_view> WithoutPrefix(absl::string_view line, absl::string_view prefix) {
  if (absl::ConsumePrefix(&line, prefix)) return line;
  if (line == absl::StripTrailingAsciiWhitespace(prefix)) return absl::string_view();
  return std::nullopt;
}

// True for lines such as "ValueError: bad batch", "pkg.mod.f.<locals>.Error: x" and "KeyboardInterrupt".
bool IsExceptionLine(absl::string_view line) {
  const size_t colon = line.find(": ");
  const bool has_message = colon != absl::string_view::npos || absl::EndsWith(line, ":");
  const absl::string_view name =
      colon != absl::string_view::npos ? line.substr(0, colon) : absl::StripSuffix(line, ":");
  if (name.empty() || !(absl::ascii_isalpha(name[0]) || name[0] == '_')) return false;
  const auto good = [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '<' || c == '>';
  };
  if (!std::all_of(name.begin(), name.end(), good) || name.back() == '.') return false;
  // Reject a single lowercase word without a message, because it may be any text.
  return has_message || absl::ascii_isupper(name[0]) || absl::StrContains(name, ".");
}

// If `line` belongs to an exception group, returns the part of `line` that begins with the bar or plus sign.
// Otherwise returns "". `outer` is the prefix before the bar or plus sign.
absl::string_view InGroup(absl::string_view line, absl::string_view outer) {
  if (!absl::ConsumePrefix(&line, outer)) return "";
  line = absl::StripLeadingAsciiWhitespace(line);
  return absl::StartsWith(line, "|") || absl::StartsWith(line, "+") ? line : "";
}

struct Traceback {
  std::string exception;
  size_t end = 0;  // index of the line after the traceback's last line
};

std::string ExceptionAt(const Lines& lines, size_t i, absl::string_view prefix) {
  std::string text(absl::StripTrailingAsciiWhitespace(*WithoutPrefix(lines[i], prefix)));
  if (i + 1 == lines.size()) return text;
  const auto next = WithoutPrefix(lines[i + 1], prefix);
  if (next && !next->empty() && (text.back() == ':' || absl::StartsWith(*next, "nccl"))) {
    absl::StrAppend(&text, " ", absl::StripAsciiWhitespace(*next));
  }
  return text;
}

// Returns the first exception of a group. Advances `i` to the line after the group.
std::string FirstOfGroup(const Lines& lines, absl::string_view prefix, size_t& i) {
  const absl::string_view outer = absl::StripTrailingAsciiWhitespace(absl::StripSuffix(prefix, "| "));
  Lines first;
  int section = 0;
  for (; i < lines.size(); ++i) {
    absl::string_view line = InGroup(lines[i], outer);
    if (line.empty()) break;
    if (line[0] == '+' && !absl::StrContains(line, kHeader)) {
      ++section;
    } else if (section == 1) {
      absl::ConsumePrefix(&line, "| ");
      first.push_back(line);
    }
  }
  if (first.empty()) return "";
  if (auto inner = FindPythonException(absl::StrJoin(first, "\n"))) return std::move(inner->line);
  return std::string(first[0]);
}

// Returns the traceback that begins at line `i`; nullopt if it is incomplete.
std::optional<Traceback> ReadTraceback(const Lines& lines, size_t i, const Beginning& beginning) {
  int stray = 0;
  for (++i; i < lines.size() && stray <= kMaxStrayLines; ++i) {
    const auto line = WithoutPrefix(lines[i], beginning.prefix);
    if (line && (line->empty() || (*line)[0] == ' ')) continue;
    if (!line || !IsExceptionLine(*line)) {
      if (FindBeginning(lines[i])) return std::nullopt;
      ++stray;
      continue;
    }
    Traceback found = {.exception = ExceptionAt(lines, i, beginning.prefix), .end = i + 1};
    if (beginning.group) {
      const std::string first = FirstOfGroup(lines, beginning.prefix, found.end);
      if (!first.empty()) absl::StrAppend(&found.exception, ", the first: ", first);
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<PythonException> FindPythonException(absl::string_view text) {
  const Lines lines = absl::StrSplit(text, '\n');
  std::optional<PythonException> found;
  absl::string_view link;  // relation of the next traceback to the previous one; empty if unrelated
  for (size_t i = 0; i < lines.size();) {
    if (absl::StrContains(lines[i], kFrom)) link = ", from ";
    if (absl::StrContains(lines[i], kWhile)) link = ", while handling ";
    const auto beginning = FindBeginning(lines[i]);
    const auto traceback = beginning ? ReadTraceback(lines, i, *beginning) : std::nullopt;
    if (!traceback) {
      ++i;
      continue;
    }
    std::string line = traceback->exception;
    // If the error was raised in another process, both tracebacks end with the same exception, which must not
    // be repeated.
    if (found && !link.empty() && !absl::StartsWith(found->line, line)) {
      absl::StrAppend(&line, link, found->line);
    }
    found =
        PythonException{.at = static_cast<size_t>(lines[i].data() - text.data()), .line = std::move(line)};
    link = {};
    i = traceback->end;
  }
  return found;
}

}  // namespace ddprun
