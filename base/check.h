// DDPRUN_CHECK: an assertion that is enabled in all builds.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace ddprun {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const std::string& state) {
  std::fprintf(stderr, "%s:%d: broken invariant %s: %s\n", file, line, condition, state.c_str());
  std::abort();
}

}  // namespace ddprun

// If `condition` is false, prints the source location, the condition and `state` to stderr and aborts the
// process. `state` is a value or several values joined by <<; it is evaluated only on failure.
#define DDPRUN_CHECK(condition, state)                                                 \
  do {                                                                                 \
    if (!(condition)) [[unlikely]] {                                                   \
      std::ostringstream ddprun_check_state;                                           \
      ddprun_check_state << state; /* NOLINT: a chain of << */                         \
      ::ddprun::CheckFailed(__FILE__, __LINE__, #condition, ddprun_check_state.str()); \
    }                                                                                  \
  } while (false)
