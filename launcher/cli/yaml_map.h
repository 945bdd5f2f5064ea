// The subset of YAML for configuration files: one map from names to strings, lists of strings, or maps of
// strings, each with its line number. Aliases, tags, deeper nesting and multiple documents are rejected while
// parsing, so that a small file cannot expand to a large one in memory.
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
