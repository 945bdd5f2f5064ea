#include "proto/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

bool Continues(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Returns the size in bytes of the character at the beginning of `text`, or 0 if that character is invalid.
size_t CharacterSize(absl::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  // The lowest and the highest valid second byte. These bounds exclude surrogates, overlong forms and code
  // points beyond U+10FFFF.
  uint8_t least = 0x80, most = 0xBF;
  size_t size = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) least = 0xA0;
    if (lead == 0xED) most = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) least = 0x90;
    if (lead == 0xF4) most = 0x8F;
  } else {
    return 0;
  }
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return size;
}

}  // namespace

std::string Utf8Head(absl::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    const absl::string_view character = size == 0 ? kReplacement : text.substr(0, size);
    if (out.size() + character.size() > max_bytes) break;
    absl::StrAppend(&out, character);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

std::string Utf8Tail(absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    text.remove_prefix(text.size() - max_bytes);
    for (int i = 0; i < 3 && !text.empty() && Continues(text.front()); ++i) text.remove_prefix(1);
  }
  // Replacement characters may make the text longer.
  std::string out = Utf8Head(text, 3 * max_bytes);
  if (out.size() <= max_bytes) return out;
  size_t begin = out.size() - max_bytes;
  while (begin < out.size() && Continues(out[begin])) ++begin;
  return out.substr(begin);
}

size_t FindControl(absl::string_view text, size_t from) {
  for (size_t i = from; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return i;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return i;
  }
  return absl::string_view::npos;
}

std::string Utf8Line(absl::string_view text, size_t max_bytes) {
  std::string line = Utf8Head(text, max_bytes);
  for (size_t i = 0; (i = FindControl(line, i)) != absl::string_view::npos;) {
    line.replace(i, line[i] == '\xc2' ? 2 : 1, 1, ' ');
  }
  return line;
}

}  // namespace ddprun
