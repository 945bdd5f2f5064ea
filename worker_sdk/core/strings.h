// Text for messages, keys and files, and numbers in text. The worker library cannot use Abseil; see
// docs/decisions/0012-worker-library.md.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

namespace internal {

inline void Append(std::string& out, std::string_view text) { out.append(text); }
inline void Append(std::string& out, const std::string& text) { out.append(text); }
inline void Append(std::string& out, const char* text) { out.append(text); }
inline void Append(std::string& out, char) = delete;  // a character or a number?
inline void Append(std::string& out, bool b) { out.push_back(b ? '1' : '0'); }
template <std::integral T>
requires(!std::same_as<T, bool> && !std::same_as<T, char>) void Append(std::string& out, T number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}
// Six significant digits, like %g.
template <std::floating_point T>
void Append(std::string& out, T number) {
  char digits[32];
  out.append(digits,
             std::to_chars(digits, digits + sizeof digits, number, std::chars_format::general, 6).ptr);
}

}  // namespace internal

// Appends all parts. A part is a string or a number.
template <typename... Parts>
void StrAppend([[maybe_unused]] std::string* out, const Parts&... parts) {
  (internal::Append(*out, parts), ...);
}

// The parts, one after the other.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  StrAppend(&out, parts...);
  return out;
}

// The text that printf writes.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// The elements of `list`, with `separator` between them.
template <typename List>
std::string StrJoin(const List& list, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& element : list) {
    if (!first) out.append(separator);
    first = false;
    StrAppend(&out, element);
  }
  return out;
}

// The pieces of `text` between occurrences of `separator`: one more than there are occurrences.
std::vector<std::string> StrSplit(std::string_view text, char separator);

// The whole of `text` as a decimal number; nullopt if it is none or does not fit T. No blanks, no '+'.
template <std::integral T>
std::optional<T> ParseNumber(std::string_view text) {
  T number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Removes `prefix` or `suffix` from `text`. Returns false, and changes nothing, if it is not there.
bool ConsumePrefix(std::string_view* text, std::string_view prefix);
bool ConsumeSuffix(std::string_view* text, std::string_view suffix);

// Two lower-case hexadecimal digits for each byte.
std::string ToHex(std::string_view bytes);
// The inverse of ToHex; nullopt if `text` has an odd length or other characters. Accepts upper case.
std::optional<std::string> FromHex(std::string_view text);

}  // namespace ddprun
