// Text for protobuf's string fields, which must be valid UTF-8: protobuf sends a message with other bytes,
// but the receiver cannot parse it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// The beginning of `text`: whole characters, at most `max_bytes`. Invalid UTF-8 bytes become U+FFFD.
std::string Utf8Head(absl::string_view text, size_t max_bytes);
// Likewise, the end of `text`.
std::string Utf8Tail(absl::string_view text, size_t max_bytes);

// Position of the first control character at or after `from`, or npos. Control characters are those of ASCII
// and U+0080 to U+009F: terminals interpret them, and a line break splits a log line.
size_t FindControl(absl::string_view text, size_t from = 0);
// Utf8Head as one line for people: control characters become blanks.
std::string Utf8Line(absl::string_view text, size_t max_bytes);

}  // namespace ddprun
