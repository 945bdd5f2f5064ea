// A few kilobytes of public-domain English, the default text of `train`.
#pragma once

#include <string_view>

namespace ddprun::train {

std::string_view BuiltinText();

}  // namespace ddprun::train
