// The bytes in a pipe, seen without taking them out.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "os/unique_fd.h"

namespace ddprun {

// Not thread-safe.
//   Owns: three descriptors, from the first Look on.
class PipePeek {
 public:
  static constexpr size_t kMaxBytes = 20 << 10;

  // The last bytes that `pipe` holds now, at most kMaxBytes, valid until the next call; `all` gets how many
  // bytes they end, counted from the first one in the pipe. Empty: there are none, or the system refuses.
  absl::string_view Look(int pipe, size_t& all);

 private:
  bool Open();

  UniqueFd reader_;  // of a pipe that gets references to the bytes
  UniqueFd writer_;
  UniqueFd null_;
  std::string last_;
};

}  // namespace ddprun
