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

  // Duplicates as many bytes from the beginning of `pipe` as fit into a private pipe. Returns the last of
  // these bytes, at most kMaxBytes, and sets `all` to the number of bytes duplicated. The result is valid
  // until the next call. The result is empty if `pipe` is empty, is not a pipe, or cannot be read.
  absl::string_view Look(int pipe, size_t& all);

 private:
  bool Open();

  // A private pipe into which tee(2) duplicates the bytes.
  UniqueFd reader_;
  UniqueFd writer_;
  UniqueFd null_;  // /dev/null
  std::string last_;
};

}  // namespace ddprun
