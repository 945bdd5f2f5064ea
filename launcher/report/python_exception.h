// Finds the exception that ended a Python program in the traceback that the program printed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

struct PythonException {
  size_t at = 0;     // offset in the text at which the last traceback begins
  std::string line;  // the exception; see FindPythonException
};

// Returns the exception of the last traceback in `text`, followed by its chain. The chain consists of the
// exceptions that caused the exception or that were being handled when it was raised. Examples:
//   ValueError: bad batch
//   RuntimeError: step 7 failed, from KeyError: 'loss'
//   TypeError: x, while handling ValueError: bad batch
//   ExceptionGroup: loaders (2 sub-exceptions), the first: OSError: disk
// If the message has several lines, returns only the first line, or the first two lines if the first ends
// with a colon or the second is from NCCL. The beginning of the traceback may be missing, and all its lines
// may have the same prefix, such as "[rank0]: ". If the error was raised in another process, for example of a
// data loader or a pool, uses the traceback of that process. Returns nullopt if there is no complete
// traceback.
std::optional<PythonException> FindPythonException(absl::string_view text);

}  // namespace ddprun
