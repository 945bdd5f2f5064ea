// Text for protobuf's string fields, which must be valid UTF-8: a message with any other is sent, but cannot
// be read.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// The beginning of `text`, at most `max_bytes` of it, whole characters. Bytes that are no UTF-8 become
// U+FFFD.
std::string Utf8Head(absl::string_view text, size_t max_bytes);
// The same of its end.
std::string Utf8Tail(absl::string_view text, size_t max_bytes);

}  // namespace ddprun
