// Finds a program's error message in its output.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns one line: the last Python exception with its chain (see python_exception.h), or the message of an
// aborted native program (uncaught exception, failed assertion or CHECK, sanitizer or allocator error),
// whichever is later in `text`. Returns an empty string if `text` contains neither.
//   text: the available tail of the program's stderr, or the text of its error file. If `text` is longer than
//         64 KiB, only the first and the last 32 KiB are searched.
std::string ProgramError(absl::string_view text);

struct FoundError {
  size_t at = 0;  // offset in the text at which the error begins
  std::string line;
};
// Returns the last error of a native program in `text`; nullopt if there is none.
std::optional<FoundError> NativeError(absl::string_view text);

}  // namespace ddprun
