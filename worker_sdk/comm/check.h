// A broken invariant of ours ends the process, saying which.
#pragma once

#include <cstdio>
#include <cstdlib>

// Aborts with the place and `what` when `condition` is false.
#define DDPRUN_CHECK(condition, what)                                                                 \
  do {                                                                                                \
    if (!(condition)) [[unlikely]] {                                                                  \
      std::fprintf(stderr, "%s:%d: broken invariant %s: %s\n", __FILE__, __LINE__, #condition, what); \
      std::abort();                                                                                   \
    }                                                                                                 \
  } while (false)
