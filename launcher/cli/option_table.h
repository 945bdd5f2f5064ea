// Every option of the command line, declared once: what is read, shown by --help and completed comes from
// here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun {

// Where an option may be given besides the command line.
enum class GivenBy {
  kVariableAndFile,  // PET_<NAME> and the configuration file
  kFile,             // that file only, as torchrun has no variable for it
  kVariable,
  kCommandLineOnly,
};

// How a configuration file may write a value other than as text.
enum class ListForm {
  kNone,     // not at all
  kCommas,   // as a list, whose entries are joined by commas
  kEscaped,  // the same, and a comma in an entry is written twice
};

struct OptionSpec {
  const char* section;
  const char* name;  // as --a-b, without the dashes
  char letter = 0;   // 0: none
  // What stands for the value in --help; empty: a flag, which has none. Lower-case words between '|' are
  // values to be completed, FILE and DIR stand for paths.
  const char* value = "";
  const char* fallback = "";  // its value where it is not given
  const char* help = "";
  GivenBy given_by = GivenBy::kVariableAndFile;
  ListForm list = ListForm::kNone;
  bool torchruns = true;  // false: of our own

  bool is_flag() const { return *value == '\0'; }
};

// One section after the other, as --help shows them.
absl::Span<const OptionSpec> OptionTable();

// The variable that sets its default: PET_NNODES; empty where there is none.
std::string VariableOf(const OptionSpec& spec);

// The option `typed` (no dashes before it, either spelling): an exact name, or the beginning of one only. A
// beginning that means one option to torchrun means that one here.
//   Errors: kInvalidArgument: unknown (the nearest is proposed), or the beginning of several.
absl::StatusOr<const OptionSpec*> FindOption(absl::string_view typed);

// The option with this letter, or nullptr.
const OptionSpec* FindOption(char letter);

// That of `names` which looks most like `typed`, else the only one that begins like it; or nothing.
absl::string_view Nearest(absl::string_view typed, absl::Span<const absl::string_view> names);

// With '-' for '_'.
std::string WithHyphens(absl::string_view name);

}  // namespace ddprun
