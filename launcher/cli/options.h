// Options from the command line, the environment and a configuration file, as unparsed strings.
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

// Returns the content of a file. Errors: those of the file system; the message does not contain the path.
using ReadFile = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// The value of every option, given or default, not yet parsed.
class Options {
 public:
  // The value of option `name` (as declared, without dashes); "1" or "" for a flag.
  //   REQUIRES: an option of that name is declared.
  const std::string& Get(absl::string_view name) const { return At(name).value; }
  bool IsSet(absl::string_view name) const { return !At(name).value.empty(); }
  // True if a value was given; false if the option has the table's default.
  bool IsGiven(absl::string_view name) const { return !At(name).source.empty(); }
  // The option and its value, for messages: "--nnodes=x" by default, "PET_NNODES=x" if the value is from the
  // environment, "job.yaml:3: nnodes=x" if it is from a file.
  std::string Quote(absl::string_view name) const;

  // Sets an option that has no given value. `source` is the variable that `value` is from.
  void Offer(absl::string_view name, std::string value, std::string source);

  // The program and its arguments; empty if none was given.
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

// Parses `args` (without argv[0]). The syntax is that of torchrun: an option is written --a-b or --a_b, with
// its value after '=' or as the next argument. An unambiguous prefix of a name suffices, and short options
// can be combined (-mr3). The first argument that is not an option is the program; all later arguments belong
// to the program. Precedence, highest first: the command line, PET_<NAME> in the environment, the file given
// by --config, the table's defaults. A program on the command line replaces the program and the arguments in
// the file.
//   Errors: kInvalidArgument: an unknown option (the message has the nearest name), an ambiguous prefix, a
//           missing or unexpected value, a flag's variable that is not a number, a file that cannot be read
//           or is invalid (the message has the line). The message names the argument and the expected form.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env,
                                     const ReadFile& read_file);

}  // namespace ddprun
