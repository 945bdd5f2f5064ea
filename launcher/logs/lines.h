// Splits streams, which arrive in pieces, into whole lines.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Prefixes each line of a stream. A line ends with "\n", "\r\n" or "\r", as in Python's text mode, so that
// each step of a progress bar is a line. All lines are written with "\n".
class LinePrefixer {
 public:
  // A longer line is split into lines of this size.
  static constexpr size_t kMaxLine = 4 << 20;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` completes to `lines`. Holds back an incomplete last line.
  void Feed(absl::string_view bytes, std::string& lines);

  // Appends the incomplete line, if any, as a line. Later bytes begin a new one.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }
  size_t prefix_size() const { return prefix_.size(); }

 private:
  // The number of bytes that continue the current line, up to its end or kMaxLine; npos: the line is still
  // incomplete.
  size_t RestOfLine(absl::string_view bytes, bool has_returns) const;

  const std::string prefix_;
  std::string partial_;
  bool after_return_ = false;  // the last byte was "\r"; if "\n" is next, it belongs to the same line end
};

// The variables of a line prefix.
struct LineOrigin {
  std::string role;
  LocalRank local_rank;
  Rank rank;
  std::string hostname;  // as returned by gethostname
};

// Returns the prefix of a worker's lines on the console: `prefix_template` with role_name, local_rank, rank
// and hostname substituted (see SafeSubstitute), and nothing appended. An empty template means
// "[${role_name}${local_rank}]:".
std::string FormatPrefix(absl::string_view prefix_template, const LineOrigin& origin);

// Returns the offset after the last line end in `bytes`; 0 if there is none. A final "\r" does not count: it
// may be the first half of "\r\n".
size_t EndOfLastLine(absl::string_view bytes);

// Holds back the incomplete last line of a stream; passes all bytes unchanged. A line ends with "\n",
// "\r\n" or "\r", so that each step of a progress bar is a line.
class LineHolder {
 public:
  // A longer line is not held back.
  static constexpr size_t kMaxLine = 4 << 20;

  // Passes whole lines and holds back the rest. The output is `held` followed by the return value: `held` is
  // set to bytes that were held back earlier, and the return value is a prefix of `bytes`.
  absl::string_view Pass(absl::string_view bytes, std::string& held);
  // Like Pass, but appends the output to `lines`.
  void Feed(absl::string_view bytes, std::string& lines);
  // Appends the bytes that are held back to `lines`.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace ddprun
