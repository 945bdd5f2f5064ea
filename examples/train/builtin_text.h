// A few kilobytes of public-domain English, so that `train` runs with nothing else given.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun::train {

absl::string_view BuiltinText();

}  // namespace ddprun::train
