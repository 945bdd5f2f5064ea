// Reports that the program under test uses CUDA or NCCL in a way that they forbid, or that the stand-in forbids.
#pragma once

#include <sstream>
#include <string>

namespace ddprun::stand_in {

// Prints the message and the seed to stderr, and aborts the process.
[[noreturn]] void AbortForMisuse(const std::string& message);

// Misuse("cuMemFree: ", size, " bytes") aborts with the text of its arguments.
template <typename... Parts>
[[noreturn]] void Misuse(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  AbortForMisuse(message.str());
}

}  // namespace ddprun::stand_in
