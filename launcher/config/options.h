// The command line: every option declared once, in the table of options.cc.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

using GetEnv = std::function<std::optional<std::string>(absl::string_view name)>;

// What was asked for, not yet understood. Every option has a value: given, from the environment, or its
// default.
class Options {
 public:
  // Value of option `name` (as declared, without dashes); "1" or "" for a flag.
  //   REQUIRES: an option of that name is declared.
  const std::string& Get(absl::string_view name) const { return At(name).value; }
  bool IsSet(absl::string_view name) const { return !At(name).value.empty(); }
  // True when it did not come from the table's default.
  bool IsGiven(absl::string_view name) const { return !At(name).source.empty(); }
  // For messages: "--nnodes=x", or "PET_NNODES=x" when it came from there.
  std::string Quote(absl::string_view name) const;

  // The program and what belongs to it; empty when none was given.
  const std::vector<std::string>& program() const { return program_; }

 private:
  friend absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env);

  struct Entry {
    std::string value;
    std::string source;  // "--nnodes", "PET_NNODES"; empty for the default
  };
  const Entry& At(absl::string_view name) const { return entries_.find(std::string(name))->second; }

  std::map<std::string, Entry> entries_;
  std::vector<std::string> program_;
};

// Reads `args` (without the program's own name) as torchrun does: --a-b or --a_b, value after '=' or as the
// next argument, any unambiguous beginning of a name; the first argument that is no option is the program,
// and all behind it is the program's own. Defaults come from PET_<NAME> in the environment, then from the
// table.
//   Errors: kInvalidArgument, one sentence with the argument and what is expected: unknown option (with the
//           nearest one), ambiguous beginning, missing or unexpected value, a flag's variable that is no
//           number.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env);

// The text of --help, grouped.
std::string HelpText();

// Names of all options as declared, for tests of completeness.
std::vector<std::string> OptionNames();

}  // namespace ddprun
