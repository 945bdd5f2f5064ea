// Finds the exception that ended a Python program in the traceback that it printed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

struct PythonException {
  size_t at = 0;     // offset in the text where the last traceback begins
  std::string line;  // see FindPythonException
};

// Returns the exception of the last traceback in `text`, with the exceptions from which, or while handling
// which, it was raised:
//   ValueError: bad batch
//   RuntimeError: step 7 failed, from KeyError: 'loss'
//   TypeError: x, while handling ValueError: bad batch
//   ExceptionGroup: loaders (2 sub-exceptions), the first: OSError: disk
// Of a multi-line message the first line is returned, with the second one if the first ends with a colon or
// the second is NCCL's. The beginning of the traceback may be missing, and all its lines may have the same
// prefix ("[rank0]: "). For an error of another process (data loader, pool) the traceback of that process is
// used. Returns nullopt if there is no complete traceback.
std::optional<PythonException> FindPythonException(absl::string_view text);

}  // namespace ddprun
