#include "launcher/report/terminal_text.h"

#include <algorithm>

#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

constexpr char kEscape = '\x1b';
constexpr size_t kTab = 8;

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the size in bytes of the UTF-8 sequence at the beginning of `text`; 0 if the sequence is invalid.
size_t SequenceSize(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80   ? 1
                      : first < 0xC2 ? 0
                      : first < 0xE0 ? 2
                      : first < 0xF0 ? 3
                      : first < 0xF5 ? 4
                                     : 0;
  if (size == 0 || size > text.size()) return 0;
  return std::all_of(text.begin() + 1, text.begin() + static_cast<ptrdiff_t>(size), Continues) ? size : 0;
}

// Returns the size in bytes of the escape sequence at the beginning of `text`.
size_t EscapeSize(absl::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == ']') {  // An OSC sequence ends with BEL, or with ESC and one more byte.
    const size_t end = text.find_first_of(absl::string_view("\a\x1b", 2), 2);
    if (end == absl::string_view::npos) return text.size();
    return text[end] == kEscape ? std::min(end + 2, text.size()) : end + 1;
  }
  if (text[1] != '[') return 2;
  size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

absl::string_view AfterLastReturn(absl::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t at = line.rfind('\r');
  return at == absl::string_view::npos ? line : line.substr(at + 1);
}

}  // namespace

std::string CleanLine(absl::string_view line) {
  line = AfterLastReturn(line);
  std::string clean;
  size_t column = 0;
  while (!line.empty()) {
    size_t used = 1;
    if (line[0] == kEscape) {
      used = EscapeSize(line);
    } else if (line[0] == '\t') {
      const size_t blanks = kTab - column % kTab;
      clean.append(blanks, ' ');
      column += blanks;
    } else if (const size_t size = SequenceSize(line); size == 0) {
      clean.push_back('?');
      ++column;
    } else if (size > 1 || (line[0] >= ' ' && line[0] != '\x7f')) {
      clean.append(line.data(), size);
      used = size;
      ++column;
    }
    line.remove_prefix(used);
  }
  clean.erase(clean.find_last_not_of(' ') + 1);
  return clean;
}

std::vector<std::string> CleanLines(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::string clean = CleanLine(line);
    if (!lines.empty() || !clean.empty()) lines.push_back(std::move(clean));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> Wrap(absl::string_view line, size_t width) {
  std::vector<std::string> pieces;
  while (true) {
    size_t end = 0;  // size in bytes of the first `width` code points
    for (size_t count = 0; end < line.size(); ++end) {
      if (!Continues(line[end]) && count++ == width) break;
    }
    if (end == line.size()) break;
    const size_t blank = line.rfind(' ', end);
    // Do not split near the beginning, because the piece would be nearly empty.
    const bool at_blank = blank != absl::string_view::npos && blank > end / 2;
    pieces.emplace_back(line.substr(0, at_blank ? blank : end));
    line.remove_prefix(at_blank ? blank + 1 : end);
  }
  if (!line.empty() || pieces.empty()) pieces.emplace_back(line);
  return pieces;
}

}  // namespace ddprun
