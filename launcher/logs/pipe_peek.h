// Reads bytes from a pipe without consuming them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "os/descriptor.h"

namespace ddprun {

//   Threads: not thread-safe.
//   Owns:    three descriptors, after the first Look.
class PipePeek {
 public:
  static constexpr size_t kMaxBytes = 20 << 10;

  // Returns the last bytes in `pipe`, at most kMaxBytes; valid until the next call. Sets `all` to the number
  // of bytes from the beginning of the pipe to the end of the result. The result is empty if the pipe is
  // empty or cannot be read this way.
  absl::string_view Look(int pipe, size_t& all);

 private:
  bool Open();

  UniqueFd reader_;  // of a private pipe into which tee(2) duplicates the bytes
  UniqueFd writer_;
  UniqueFd null_;
  std::string last_;
};

}  // namespace ddprun
