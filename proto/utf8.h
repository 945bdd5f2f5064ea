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

// Where the first control character from `from` on is, or npos: those of ASCII and their second set (U+0080 to
// U+009F). A terminal obeys them, and a line break begins a line of its own in a log.
size_t FindControl(absl::string_view text, size_t from = 0);
// Utf8Head as one line for people: control characters become blanks.
std::string Utf8Line(absl::string_view text, size_t max_bytes);

}  // namespace ddprun
