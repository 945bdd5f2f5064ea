#include "launcher/report/python_json.h"

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace ddprun {
namespace {

namespace json = boost::json;

constexpr uint32_t kReplacement = 0xFFFD;

absl::string_view View(json::string_view text) { return {text.data(), text.size()}; }

// Removes the first code point from `text` and returns it. If the first byte does not begin a valid code
// point, removes this byte and returns kReplacement.
//   REQUIRES: `text` is not empty.
uint32_t TakeCodePoint(absl::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  text.remove_prefix(1);
  if (first < 0x80) return first;
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || text.size() < more) return kReplacement;
  uint32_t code_point = first & (0x3Fu >> more);
  for (size_t i = 0; i < more; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return kReplacement;
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  constexpr std::array<uint32_t, 4> kSmallest = {0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < kSmallest[more] || code_point > 0x10FFFF || surrogate) return kReplacement;
  text.remove_prefix(more);
  return code_point;
}

std::string Escaped(uint32_t code_point) {
  switch (code_point) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
  }
  if (code_point >= 0x20 && code_point < 0x7F) return std::string(1, static_cast<char>(code_point));
  if (code_point == 0x7F) return "\x7f";
  if (code_point < 0x10000) return absl::StrFormat("\\u%04x", code_point);
  const uint32_t rest = code_point - 0x10000;
  return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

}  // namespace

std::string PythonString(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) out += Escaped(TakeCodePoint(text));
  return out + "\"";
}

std::string PythonFloat(double number) {
  if (std::isnan(number)) return "0.0";
  if (std::isinf(number)) return number < 0 ? "-1e999" : "1e999";
  const double size = std::abs(number);
  const bool has_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto form = has_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, form);
  std::string text(buffer.data(), end);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string PythonDumps(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
      return absl::StrCat(value.get_int64());
    case json::kind::uint64:
      return absl::StrCat(value.get_uint64());
    case json::kind::double_:
      return PythonFloat(value.get_double());
    case json::kind::string:
      return PythonString(View(value.get_string()));
    case json::kind::array:
      return absl::StrCat(
          "[",
          absl::StrJoin(value.get_array(), ", ",
                        [](std::string* out, const json::value& item) { out->append(PythonDumps(item)); }),
          "]");
    case json::kind::object:
      return absl::StrCat("{",
                          absl::StrJoin(value.get_object(), ", ",
                                        [](std::string* out, const json::key_value_pair& field) {
                                          absl::StrAppend(out, PythonString(View(field.key())), ": ",
                                                          PythonDumps(field.value()));
                                        }),
                          "}");
  }
  return "null";
}

}  // namespace ddprun
