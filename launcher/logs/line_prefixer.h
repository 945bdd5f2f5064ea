// Puts a prefix in front of each line of a stream that arrives in pieces.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace ddprun {

class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` completes, each with the prefix. What follows the last newline is held back until
  // its line is complete; a line longer than 64 KiB is passed on in pieces of that size, each as a line.
  std::string Feed(absl::string_view bytes);

  // What was held back, as a line. For when nothing comes any more.
  std::string Finish();

 private:
  const std::string prefix_;
  std::string partial_;
};

}  // namespace ddprun
