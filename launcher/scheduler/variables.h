// Reads the variables that schedulers set.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/options.h"

namespace ddprun {

inline constexpr int kMaxScheduledNodes = 1 << 20;

// Returns kInvalidArgument with a message of the form "VARIABLE=VALUE: TEXT".
template <typename... Text>
absl::Status BadVariable(absl::string_view variable, absl::string_view value, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(variable, "=", value, ": ", text...));
}

// Returns the value of `variable`, or an empty text if it is not set.
std::string ValueOf(const GetEnv& get_env, absl::string_view variable);

// Returns the number in `variable`. `setter` is the program that sets it.
//   Errors: kInvalidArgument: the variable is missing or is not a number from `min` to `max`.
absl::StatusOr<int> NumberIn(const GetEnv& get_env, absl::string_view variable, int min, int max,
                             absl::string_view setter);

}  // namespace ddprun
