// A broken invariant of ours ends the process, saying which, and in what state.
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

// Aborts with the place, the condition and `state` when `condition` is false. `state` is text, or a chain of
// values with << between them; it is evaluated only then.
#define DDPRUN_CHECK(condition, state)                                                 \
  do {                                                                                 \
    if (!(condition)) [[unlikely]] {                                                   \
      std::ostringstream ddprun_check_state;                                           \
      ddprun_check_state << state; /* NOLINT: a chain of << */                         \
      ::ddprun::CheckFailed(__FILE__, __LINE__, #condition, ddprun_check_state.str()); \
    }                                                                                  \
  } while (false)
