// Makes whole lines of a stream that arrives in pieces, and puts a prefix in front of each.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// A line ends with "\n", "\r\n" or "\r", as Python reads text, so that each step of a progress bar is a line.
// It comes out with "\n".
class LinePrefixer {
 public:
  // What is longer is passed on in pieces of that size, each as a line.
  static constexpr size_t kMaxLine = 4 << 20;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` completes to `lines`. What follows the last end of a line is held back
  // until its line is complete.
  void Feed(absl::string_view bytes, std::string& lines);

  // Appends what was held back, as a line. What comes next begins a new one.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }
  size_t prefix_size() const { return prefix_.size(); }

 private:
  // How many bytes continue the line that is held back, up to its end or to kMaxLine; npos: it is not
  // complete.
  size_t RestOfLine(absl::string_view bytes, bool has_returns) const;

  const std::string prefix_;
  std::string partial_;
  bool after_return_ = false;  // a "\n" that comes next belongs to the line before
};

// What stands before each line of a worker on the console.

struct LineOrigin {
  std::string role;
  LocalRank local_rank;
  Rank rank;
  std::string hostname;  // as gethostname has it
};

// `prefix_template` with its variables role_name, local_rank, rank and hostname, see SafeSubstitute; nothing
// is added, no blank and no colon. An empty one: "[${role_name}${local_rank}]:".
std::string FormatPrefix(absl::string_view prefix_template, const LineOrigin& origin);

// Whole lines of a stream that arrives in pieces, byte for byte.

// Behind the last end of a line in `bytes`; 0: there is none. A "\r" at the end may be half of a "\r\n".
size_t EndOfLastLine(absl::string_view bytes);

// A line ends with "\n", "\r\n" or "\r": each step of a progress bar is a line.
class LineHolder {
 public:
  // A line that is longer is not held back.
  static constexpr size_t kMaxLine = 4 << 20;

  // Holds back what follows the last line that `bytes` completes. The lines are `held`, which gets what was
  // held back before them, and then the result, a prefix of `bytes`.
  absl::string_view Pass(absl::string_view bytes, std::string& held);
  // The same, appended to `lines`.
  void Feed(absl::string_view bytes, std::string& lines);
  // Appends what was held back.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace ddprun
