// The mode in which the processor computes with floating-point numbers. A program may have changed it for its threads:
// to flush denormal numbers to zero, as -ffast-math does, or to round in another direction.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace ddprun {

// While it exists, the calling thread computes in the default mode. Reductions then give equal bits on all ranks.
class DefaultFloatingPointMode {
 public:
#if defined(__x86_64__)
  DefaultFloatingPointMode() : before_(_mm_getcsr()) {
    if (HasOtherMode()) _mm_setcsr(kDefault);
  }
  ~DefaultFloatingPointMode() {
    if (HasOtherMode()) _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kDefault = 0x1F80;  // all exceptions masked, to nearest, denormal numbers kept
  static constexpr unsigned kRaised =
      0x3F;  // the exceptions that were raised: almost always some, and no mode
  bool HasOtherMode() const { return (before_ & ~kRaised) != kDefault; }
  const unsigned before_;
#else
  DefaultFloatingPointMode() {
    fegetenv(&before_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPointMode() { fesetenv(&before_); }

 private:
  fenv_t before_;
#endif
};

}  // namespace ddprun
