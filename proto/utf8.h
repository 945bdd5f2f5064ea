// Conversion of text to valid UTF-8, which protobuf's string fields require. Protobuf sends a message with
// invalid text, but the receiver cannot parse the message.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns as many whole characters from the beginning of `text` as fit into `max_bytes` bytes. Replaces each
// byte that is invalid UTF-8 with U+FFFD, which occupies three bytes of the result.
std::string Utf8Head(absl::string_view text, size_t max_bytes);
// Like Utf8Head, but returns characters from the end of `text`.
std::string Utf8Tail(absl::string_view text, size_t max_bytes);

// Returns the position of the first control character at or after `from`, or npos if there is none. The
// control characters are U+0000 to U+001F and U+007F to U+009F. Terminals interpret control characters, and
// a line break would split a log line.
size_t FindControl(absl::string_view text, size_t from = 0);
// Like Utf8Head, but also replaces each control character with a blank, so that the result is one line.
std::string Utf8Line(absl::string_view text, size_t max_bytes);

}  // namespace ddprun
