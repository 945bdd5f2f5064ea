// What is done when nodes come to a running job that has room for them.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun {

enum class ScaleUp {
  kImmediate,   // the round ends when the last call is over
  kAtSnapshot,  // its workers are asked for a snapshot first, and it ends at that
  kNever,       // they are spares, and come in when it ends for another reason
};

// As in --scale-up.
constexpr absl::string_view ToString(ScaleUp scale_up) {
  switch (scale_up) {
    case ScaleUp::kImmediate:
      return "immediate";
    case ScaleUp::kAtSnapshot:
      return "at-snapshot";
    case ScaleUp::kNever:
      return "never";
  }
  return "?";
}

}  // namespace ddprun
