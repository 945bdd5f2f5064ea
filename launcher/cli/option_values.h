// Parses option values: names, numbers and durations. Errors state the option and the expected form.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/cli/options.h"

namespace ddprun {

// Returns kInvalidArgument with a message of the form "--nnodes=x: expected WANT".
absl::Status BadValue(const Options& options, absl::string_view name, absl::string_view want);

// Returns the value of option `name`, which must be a name that can be sent to other nodes: UTF-8, not empty,
// at most 256 bytes. Errors: BadValue.
absl::StatusOr<std::string> Name(const Options& options, absl::string_view name);

// Returns the value of option `name`, which must be a whole number from `min` to `max`. Errors: BadValue.
absl::StatusOr<int> WholeNumber(const Options& options, absl::string_view name, int min, int max,
                                absl::string_view want);

// Like the function above, for the value `text` of an environment variable.
//   Errors: kInvalidArgument: "NAME=x: expected WANT".
absl::StatusOr<int> WholeNumber(absl::string_view variable, absl::string_view text, int min, int max,
                                absl::string_view want);

// Returns the value of option `name`, which must be a number of seconds, 0 or more, possibly with decimals.
// The result is clamped to one year. Errors: BadValue.
absl::StatusOr<Duration> Seconds(const Options& options, absl::string_view name);

// Returns `number` seconds as a duration, clamped to one year.
//   REQUIRES: number >= 0.
Duration ClampedSeconds(double number);

}  // namespace ddprun
