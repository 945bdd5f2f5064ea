// --config: options, program and environment from a YAML file. Format: docs/config_file.md.
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
    std::string text;    // as on the command line; "1" or "" for a flag
    std::string source;  // "job.yaml:3: nnodes"
  };
  std::vector<Value> values;         // at most one per option
  std::vector<std::string> program;  // program and arguments; empty: none
  std::vector<std::pair<std::string, std::string>> env;
};

// Parses `text`, the content of the file `path` (used in messages only).
//   Errors: kInvalidArgument, "PATH:LINE: ...": not the accepted subset of YAML (yaml_map.h), an unknown name
//           (with the nearest one), a name given twice, an option allowed only on the command line, a value
//           of the wrong type.
absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view text, absl::string_view path);

}  // namespace ddprun
