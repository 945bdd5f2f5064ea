// --config: options, program and environment in a YAML file. See docs/config_file.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct ConfigFile {
  struct Value {
    std::string option;  // as declared
    std::string text;    // as it would stand on the command line; "1" or "" for a flag
    std::string source;  // "job.yaml:3: nnodes"
  };
  std::vector<Value> values;         // each option once
  std::vector<std::string> program;  // with its arguments; empty: none
  std::vector<std::pair<std::string, std::string>> env;
};

// Reads `text`, the file `path` (for messages).
//   Errors: kInvalidArgument, "PATH:LINE: ...": no YAML of the accepted kind (see yaml_map.h), an unknown
//           name (with the nearest), one given twice, one that is for the command line only, a value of the
//           wrong form.
absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view text, absl::string_view path);

}  // namespace ddprun
