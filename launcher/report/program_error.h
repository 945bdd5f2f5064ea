// Finds a program's own error message in what it printed before its end.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns one line: the last Python exception with its chain (see python_exception.h), or the message of an
// aborting native program (uncaught exception, failed assertion or CHECK, error of a sanitizer or of the
// allocator), whichever comes last. Empty if `text` has neither.
//   text: the available tail of its stderr, or the text of its error file. Of a text longer than 64 KiB only
//         the first and the last 32 KiB are searched.
std::string ProgramError(absl::string_view text);

// Finds errors of native programs only. `at` is the offset in `text` where the error begins.
struct FoundError {
  size_t at = 0;
  std::string line;
};
std::optional<FoundError> NativeError(absl::string_view text);

}  // namespace ddprun
