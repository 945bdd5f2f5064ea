// As much of YAML as a configuration file needs: one map from names to texts, lists of texts, or maps of
// texts, each with its line. All else YAML can say (aliases, tags, deeper nesting, several documents) is
// refused as soon as it is read, so that no small file grows large in memory.
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

struct YamlNull {};  // nothing behind the colon, or null

struct YamlPair {
  YamlText name;
  YamlText value;
};

using YamlValue = std::variant<YamlNull, YamlText, std::vector<YamlText>, std::vector<YamlPair>>;

struct YamlEntry {
  YamlText name;
  YamlValue value;
};

// The entries in the order of the file; an empty file has none. Names are unique in their map.
//   Errors: kInvalidArgument, "LINE: what is wrong": no YAML, or none of this kind; more than 64 KiB.
absl::StatusOr<std::vector<YamlEntry>> ParseYamlMap(absl::string_view text);

}  // namespace ddprun
