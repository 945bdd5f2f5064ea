// The table of all options. Parsing, --help and completion are derived from it.
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
  kFile,             // the file only: torchrun has no variable for it
  kVariable,         // PET_<NAME> only
  kCommandLineOnly,
};

// How a configuration file may write a value as a list.
enum class ListForm {
  kNone,     // no lists
  kCommas,   // entries are joined by commas
  kEscaped,  // like kCommas, but a comma within an entry is doubled
};

struct OptionSpec {
  const char* section;
  const char* name;  // with hyphens, without the leading dashes
  char letter = 0;   // 0: none
  // Placeholder for the value in --help; empty for a flag. For completion, lower-case words separated by '|'
  // are values, and FILE and DIR are paths.
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

// The variable that sets the option's default, such as PET_NNODES; empty if it has none.
std::string VariableOf(const OptionSpec& spec);

// The option named `typed` (without leading dashes, with '-' or '_'): an exact name or an unambiguous prefix.
// If several options have the prefix but torchrun has only one of them, the prefix means that one.
//   Errors: kInvalidArgument: unknown option (with the nearest name), or an ambiguous prefix.
absl::StatusOr<const OptionSpec*> FindOption(absl::string_view typed);

// The option with this letter, or nullptr.
const OptionSpec* FindOption(char letter);

// The name with the smallest edit distance to `typed`, unless even that one is too different; else the only
// name with a similar prefix; else empty.
absl::string_view Nearest(absl::string_view typed, absl::Span<const absl::string_view> names);

// Replaces '_' with '-'.
std::string WithHyphens(absl::string_view name);

}  // namespace ddprun
