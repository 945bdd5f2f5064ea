// The exception that ended a Python program, read from the traceback that it printed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

struct PythonException {
  size_t at = 0;     // where in the text its last traceback begins
  std::string line;  // as below
};

// The exception of the last traceback in `text`, with those that it was raised from or while handling:
//   ValueError: bad batch
//   RuntimeError: step 7 failed, from KeyError: 'loss'
//   TypeError: x, while handling ValueError: bad batch
//   ExceptionGroup: loaders (2 sub-exceptions), the first: OSError: disk
// Of a message with several lines the first is given, and the second when the first ends with a colon. The
// beginning of the traceback may be missing, and each of its lines may have the same prefix ("[rank0]: ").
// Tracebacks that other processes' errors carry (data loaders, pools) are seen as what they are: the origin.
// None when there is no whole traceback.
std::optional<PythonException> FindPythonException(absl::string_view text);

}  // namespace ddprun
