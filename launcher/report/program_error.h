// What a program itself says went wrong, found in what it printed before its end.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// In one line: the last Python exception with those that led to it (python_exception.h), or what a native
// program says when it aborts (an exception that nobody caught, a failed assertion or CHECK, a sanitizer's or
// the allocator's verdict), whichever comes last. Empty: `text` has neither.
//   text: the last of its stderr, as much as there is; or the text of its error file. Of a long one the first
//         and the last 32 KiB are looked into.
std::string ProgramError(absl::string_view text);

// Of native programs alone. `at` is where in `text` it begins.
struct FoundError {
  size_t at = 0;
  std::string line;
};
std::optional<FoundError> NativeError(absl::string_view text);

}  // namespace ddprun
