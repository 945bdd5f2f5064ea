// JSON objects that keep the order in which their members were added, so that files are reproducible.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ddprun {

using Json = nlohmann::ordered_json;

// Parses `text`. Returns nullopt if it is not JSON. Does not throw.
inline std::optional<Json> ParseJson(std::string_view text) {
  Json value = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return std::nullopt;
  return std::optional<Json>(std::in_place, std::move(value));
}

// `value` without blanks. Invalid UTF-8 in strings becomes U+FFFD.
inline std::string ToText(const Json& value) {
  return value.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false,
                    Json::error_handler_t::replace);
}

// The number that `value` holds; nullopt if it is no integer or does not fit.
inline std::optional<int64_t> IntegerIn(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<int64_t>();
}

// The member `name` of `object`; null if there is none or `object` is no object.
inline const Json* FindIn(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(name));
  return found == object.end() ? nullptr : &*found;
}

}  // namespace ddprun
