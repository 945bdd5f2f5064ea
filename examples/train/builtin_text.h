// A few kilobytes of public-domain English, the default text of `train`.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun::train {

absl::string_view BuiltinText();

}  // namespace ddprun::train
