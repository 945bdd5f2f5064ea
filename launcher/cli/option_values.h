// Reading numbers and durations out of options, with errors that name the option and what it expects.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/cli/options.h"

namespace ddprun {

// kInvalidArgument: "--nnodes=x: expected WANT".
absl::Status BadValue(const Options& options, absl::string_view name, absl::string_view want);

// A name that other nodes are told, and so not empty, UTF-8, and not very long. Errors: BadValue.
absl::StatusOr<std::string> Name(const Options& options, absl::string_view name);

// A whole number from `min` to `max`. Errors: BadValue.
absl::StatusOr<int> WholeNumber(const Options& options, absl::string_view name, int min, int max,
                                absl::string_view want);

// The same of a variable's text. Errors: kInvalidArgument: "NAME=x: expected WANT".
absl::StatusOr<int> WholeNumber(absl::string_view variable, absl::string_view text, int min, int max,
                                absl::string_view want);

// Seconds, 0 or more, whole or with decimals; more than a year is a year. Errors: BadValue.
absl::StatusOr<Duration> Seconds(const Options& options, absl::string_view name);

// `number`, not below 0, as a duration; more than a year is a year.
Duration ClampedSeconds(double number);

}  // namespace ddprun
