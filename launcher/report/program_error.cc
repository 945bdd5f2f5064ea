#include "launcher/report/program_error.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/report/python_exception.h"
#include "launcher/report/terminal_text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxLength = 400;  // maximum length of the result, in code points
// The number of bytes that are searched at each end of a long text. In an error file, the traceback is at the
// beginning, even if the message is long. In a program's output, the traceback is at the end.
constexpr size_t kSearchedBytes = 32 << 10;

// Returns the text after the first `mark` in `line`; nullopt if `line` does not contain `mark`.
std::optional<absl::string_view> After(absl::string_view line, absl::string_view mark) {
  const size_t at = line.find(mark);
  if (at == absl::string_view::npos) return std::nullopt;
  return line.substr(at + mark.size());
}

absl::string_view UpTo(absl::string_view text, absl::string_view mark) {
  return text.substr(0, text.find(mark));
}

// Formats an uncaught exception. libstdc++ prints its type on one line and its what() on the next line.
std::string Uncaught(absl::string_view type, absl::string_view next) {
  type = absl::StripSuffix(absl::StripPrefix(type, "'"), "'");
  const auto what = After(next, "what():");
  const absl::string_view message = what ? absl::StripAsciiWhitespace(*what) : absl::string_view();
  return message.empty() ? std::string(type) : absl::StrCat(type, ": ", message);
}

// Returns the source location and the message of a line such as
// "F0521 10:00:00.000000 123 loader.cc:12] Check failed: x". The other parts differ between processes.
std::string CheckFailure(absl::string_view line) {
  const size_t at = line.find("] Check failed: ");
  const absl::string_view place = line.substr(0, at);
  const size_t blank = place.rfind(' ');
  return absl::StrCat(blank == absl::string_view::npos ? place : place.substr(blank + 1), ": ",
                      line.substr(at + 2));
}

// Returns a sanitizer's headline without PIDs and addresses, which differ between processes.
std::string Sanitizer(absl::string_view line) {
  for (const absl::string_view mark : {"ERROR: ", "WARNING: "}) {
    if (const auto text = After(line, mark)) line = *text;
  }
  for (const absl::string_view noise : {" on address 0x", " (pc 0x", " (pid="}) line = UpTo(line, noise);
  return std::string(line);
}

// True for messages that glibc's allocator, its fortified functions and the C++ runtime print before abort().
bool IsLibraryAbort(absl::string_view line) {
  for (const absl::string_view begin :
       {"free(): ", "malloc(): ", "realloc(): ", "calloc(): ", "malloc_consolidate(): ", "munmap_chunk(): ",
        "double free or corruption", "corrupted size vs. prev_size", "corrupted double-linked list",
        "*** stack smashing detected ***", "*** buffer overflow detected ***", "pure virtual method called",
        "terminate called without an active exception"}) {
    if (absl::StartsWith(line, begin)) return true;
  }
  return false;
}

bool IsSanitizer(absl::string_view line) {
  for (const absl::string_view name : {"AddressSanitizer: ", "ThreadSanitizer: ", "MemorySanitizer: ",
                                       "LeakSanitizer: ", "UndefinedBehaviorSanitizer: "}) {
    if (absl::StrContains(line, name) && !absl::StartsWith(line, "SUMMARY")) return true;
  }
  return false;
}

// Returns the error in `line`, if any. `next` is the next line.
std::optional<std::string> StatedError(absl::string_view line, absl::string_view next) {
  if (const auto type = After(line, "terminate called after throwing an instance of ")) {
    return Uncaught(*type, next);
  }
  for (const absl::string_view how : {"terminating due to uncaught exception of type ",
                                      "terminating with uncaught exception of type "}) {  // libc++
    if (const auto what = After(line, how)) return std::string(*what);
  }
  if (absl::StrContains(line, ": Assertion `") && absl::EndsWith(line, "' failed.")) return std::string(line);
  if (absl::StrContains(line, "] Check failed: ")) return CheckFailure(line);
  if (IsSanitizer(line)) return Sanitizer(line);
  if (absl::StrContains(line, ": runtime error: ") || IsLibraryAbort(line)) return std::string(line);
  return std::nullopt;
}

// Removes port numbers such as 16276 in "[10.0.0.7]:16276". The system assigns the ports, so the numbers
// differ between ranks.
std::string WithoutPorts(absl::string_view line) {
  std::string kept;
  while (!line.empty()) {
    const size_t at = line.find("]:");
    if (at == absl::string_view::npos) break;
    size_t end = at + 2;
    while (end < line.size() && absl::ascii_isdigit(line[end])) ++end;
    absl::StrAppend(&kept, line.substr(0, end == at + 2 ? end : at + 1));
    line.remove_prefix(end);
  }
  return absl::StrCat(kept, line);
}

}  // namespace

std::optional<FoundError> NativeError(absl::string_view text) {
  std::optional<FoundError> found;
  std::optional<FoundError> fatal;  // Python's message about a fatal signal; less specific than other errors
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto at = static_cast<size_t>(lines[i].data() - text.data());
    if (auto error = StatedError(lines[i], i + 1 < lines.size() ? lines[i + 1] : "")) {
      found = FoundError{at, *std::move(error)};
    } else if (absl::StartsWith(lines[i], "Fatal Python error: ")) {
      fatal = FoundError{at, std::string(lines[i])};
    }
  }
  return found ? found : fatal;
}

std::string ProgramError(absl::string_view text) {
  std::vector<std::string> lines;
  if (text.size() <= 2 * kSearchedBytes) {
    lines = CleanLines(text);
  } else {
    lines = CleanLines(text.substr(0, kSearchedBytes));
    for (std::string& line : CleanLines(text.substr(text.size() - kSearchedBytes)))
      lines.push_back(std::move(line));
  }
  const std::string clean = absl::StrJoin(lines, "\n");
  const auto python = FindPythonException(clean);
  const auto native = NativeError(clean);
  if (!python && !native) return "";
  const std::string line =
      WithoutPorts(!native || (python && python->at > native->at) ? python->line : native->line);
  const std::vector<std::string> pieces = Wrap(line, kMaxLength);
  return pieces.size() == 1 ? line : absl::StrCat(pieces[0], " ...");
}

}  // namespace ddprun
