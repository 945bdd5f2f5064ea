// Splits streams that arrive in pieces into whole lines.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Adds a prefix to each line of a stream. A line ends with "\n", "\r\n" or "\r", as in Python's text mode, so
// that each step of a progress bar is a line. In the output, every line ends with "\n".
class LinePrefixer {
 public:
  // Longer lines are split into lines of this size, in bytes without the prefix.
  static constexpr size_t kMaxLine = 4 << 20;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Processes the next bytes of the stream. Appends complete lines, with the prefix, to `lines`. Holds back
  // an incomplete last line.
  void Feed(absl::string_view bytes, std::string& lines);

  // Appends the incomplete line, if any, to `lines` as a complete line. Later bytes begin a new line.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }
  size_t prefix_size() const { return prefix_.size(); }

 private:
  // Returns the number of bytes at the beginning of `bytes` that belong to the current line, up to its end or
  // to kMaxLine. Returns npos if the line is incomplete. `has_returns` is true if `bytes` contains "\r".
  size_t RestOfLine(absl::string_view bytes, bool has_returns) const;

  const std::string prefix_;
  std::string partial_;
  bool after_return_ = false;  // the last byte was "\r"; a "\n" that follows belongs to the same line end
};

// Values for the variables in a line prefix.
struct LineOrigin {
  std::string role;
  LocalRank local_rank;
  Rank rank;
  std::string hostname;  // as returned by gethostname
};

// Returns the prefix of a worker's lines on the console: `prefix_template` with role_name, local_rank, rank
// and hostname substituted (see SafeSubstitute). No separator is appended. An empty template means
// "[${role_name}${local_rank}]:".
std::string FormatPrefix(absl::string_view prefix_template, const LineOrigin& origin);

// Returns the offset after the last line end in `bytes`; 0 if there is none. A final "\r" does not count,
// because it may be the first half of "\r\n".
size_t EndOfLastLine(absl::string_view bytes);

// Passes a stream on in whole lines, with all bytes unchanged, and holds back an incomplete last line. A line
// ends with "\n", "\r\n" or "\r", so that each step of a progress bar is a line.
class LineHolder {
 public:
  // Longer incomplete lines are not held back.
  static constexpr size_t kMaxLine = 4 << 20;

  // Processes the next bytes of the stream. The output is `held` followed by the return value. Sets `held` to
  // bytes that earlier calls held back. The return value is a prefix of `bytes`; the rest is held back.
  absl::string_view Pass(absl::string_view bytes, std::string& held);
  // Like Pass, but appends the output to `lines`.
  void Feed(absl::string_view bytes, std::string& lines);
  // Appends to `lines` the bytes that are held back.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace ddprun
