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
    std::string option;  // name as declared in the option table
    std::string text;    // as on the command line; "1" or "" for a flag
    std::string source;  // file, line and name, such as "job.yaml:3: nnodes"
  };
  std::vector<Value> values;         // at most one per option
  std::vector<std::string> program;  // program and arguments; empty: none
  std::vector<std::pair<std::string, std::string>> env;
};

// Parses `text`, which is the content of the file `path`. `path` is only used in messages.
//   Errors: kInvalidArgument, "PATH:LINE: ...": `text` is not in the accepted subset of YAML (yaml_map.h), a
//           name is unknown (the message has the nearest name) or given twice, an option is not allowed in a
//           file, or a value has the wrong type.
absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view text, absl::string_view path);

}  // namespace ddprun
