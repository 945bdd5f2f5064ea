// Reading numbers and durations out of options, with errors that name the option and what it expects.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/config/options.h"

namespace ddprun {

// kInvalidArgument: "--nnodes=x: expected WANT".
absl::Status BadValue(const Options& options, absl::string_view name, absl::string_view want);

// A whole number from `min` to `max`. Errors: BadValue.
absl::StatusOr<int> WholeNumber(const Options& options, absl::string_view name, int min, int max,
                                absl::string_view want);

// Seconds from 0 to a year, whole or with decimals. Errors: BadValue.
absl::StatusOr<Duration> Seconds(const Options& options, absl::string_view name);

}  // namespace ddprun
