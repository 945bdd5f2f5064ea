// What was asked for on the command line, in the environment and in a configuration file.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

using GetEnv = std::function<std::optional<std::string>(absl::string_view name)>;

// A file's whole text. Errors: those of the file system, without its name.
using ReadFile = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// What was asked for, not yet understood. Every option has a value: given, or its default.
class Options {
 public:
  // Value of option `name` (as declared, without dashes); "1" or "" for a flag.
  //   REQUIRES: an option of that name is declared.
  const std::string& Get(absl::string_view name) const { return At(name).value; }
  bool IsSet(absl::string_view name) const { return !At(name).value.empty(); }
  // True when it did not come from the table's default.
  bool IsGiven(absl::string_view name) const { return !At(name).source.empty(); }
  // For messages: "--nnodes=x"; "PET_NNODES=x" or "job.yaml:3: nnodes=x" when it came from there.
  std::string Quote(absl::string_view name) const;

  // The program and what belongs to it; empty when none was given.
  const std::vector<std::string>& program() const { return program_; }
  // Variables for the program, from the configuration file.
  const std::vector<std::pair<std::string, std::string>>& program_env() const { return program_env_; }

 private:
  friend absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env,
                                              const ReadFile& read_file);

  struct Entry {
    std::string value;
    std::string source;  // "--nnodes", "PET_NNODES", "job.yaml:3: nnodes"; empty for the default
  };
  const Entry& At(absl::string_view name) const { return entries_.find(std::string(name))->second; }

  std::map<std::string, Entry> entries_;
  std::vector<std::string> program_;
  std::vector<std::pair<std::string, std::string>> program_env_;
};

// Reads `args` (without the program's own name) as torchrun does: --a-b or --a_b, value after '=' or as the
// next argument, any unambiguous beginning of a name, letters joined (-mr3); the first argument that is no
// option is the program, and all behind it is the program's own. What is not given comes from PET_<NAME> in
// the environment, then from the file that --config names, then from the table. A program on the command
// line replaces that of the file with its arguments.
//   Errors: kInvalidArgument, one sentence with the argument and what is expected: unknown option (with the
//           nearest one), ambiguous beginning, missing or unexpected value, a flag's variable that is no
//           number, a file that cannot be read or has something else in it (with its line).
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env,
                                     const ReadFile& read_file);

}  // namespace ddprun
