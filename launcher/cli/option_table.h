// The table of all options. Parsing, --help and completion use this table.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun {

// Where an option may be given, in addition to the command line.
enum class GivenBy {
  kVariableAndFile,  // PET_<NAME> and the configuration file
  kFile,             // the configuration file only: torchrun has no variable for the option
  kVariable,         // PET_<NAME> only
  kCommandLineOnly,
};

// Whether a configuration file may give the value as a list, and how the list becomes a value.
enum class ListForm {
  kNone,     // lists are not allowed
  kCommas,   // entries are joined by commas
  kEscaped,  // like kCommas, but a comma within an entry is doubled
};

struct OptionSpec {
  const char* section;
  const char* name;  // with hyphens, without the leading dashes
  char letter = 0;   // 0: none
  // Placeholder for the value in --help; empty for a flag. Completion offers the lower-case words between the
  // '|' characters as values, and file names for FILE and DIR.
  const char* value = "";
  const char* fallback = "";  // default value
  const char* help = "";
  GivenBy given_by = GivenBy::kVariableAndFile;
  ListForm list = ListForm::kNone;
  bool torchruns = true;  // false: torchrun has no such option

  bool is_flag() const { return *value == '\0'; }
};

// All options, in the order of --help.
absl::Span<const OptionSpec> OptionTable();

// Returns the environment variable that sets the option's default, such as PET_NNODES; empty if there is
// none.
std::string VariableOf(const OptionSpec& spec);

// Returns the option with the name `typed` (without leading dashes, with '-' or '_') or, if there is none,
// the only option whose name begins with `typed`. If several names begin with `typed` but torchrun has only
// one of these options, returns torchrun's option.
//   Errors: kInvalidArgument: an unknown option (the message has the nearest name), or an ambiguous prefix.
absl::StatusOr<const OptionSpec*> FindOption(absl::string_view typed);

// Returns the option with this letter, or nullptr.
const OptionSpec* FindOption(char letter);

// Returns the name with the smallest edit distance to `typed`, if that distance is small. Otherwise returns
// the only name with a similar prefix, or an empty string if there is not exactly one.
absl::string_view Nearest(absl::string_view typed, absl::Span<const absl::string_view> names);

// Replaces '_' with '-'.
std::string WithHyphens(absl::string_view name);

}  // namespace ddprun
