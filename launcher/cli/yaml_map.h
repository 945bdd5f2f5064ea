// The subset of YAML for configuration files: one map, whose values are strings, lists of strings, or maps
// from names to strings. Names and strings are returned with their line numbers. The parser rejects aliases,
// tags, deeper nesting and multiple documents as soon as it reads them, so a small file cannot expand to a
// large structure in memory.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct YamlText {
  std::string text;
  int line;  // from 1
};

struct YamlNull {};  // no value after the colon, or null

struct YamlPair {
  YamlText name;
  YamlText value;
};

using YamlValue = std::variant<YamlNull, YamlText, std::vector<YamlText>, std::vector<YamlPair>>;

struct YamlEntry {
  YamlText name;
  YamlValue value;
};

// Returns the entries in file order; an empty file has none. Names are unique within their map.
//   Errors: kInvalidArgument, "LINE: cause": invalid YAML, YAML outside this subset, more than 64 KiB.
absl::StatusOr<std::vector<YamlEntry>> ParseYamlMap(absl::string_view text);

}  // namespace ddprun
