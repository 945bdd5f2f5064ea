#include "launcher/config/option_values.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr double kYear = 365.0 * 24 * 3600;

}  // namespace

absl::Status BadValue(const Options& options, absl::string_view name, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(options.Quote(name), ": expected ", want));
}

absl::StatusOr<int> WholeNumber(const Options& options, absl::string_view name, int min, int max,
                                absl::string_view want) {
  int number;
  if (!absl::SimpleAtoi(options.Get(name), &number) || number < min || number > max) {
    return BadValue(options, name, want);
  }
  return number;
}

absl::StatusOr<int> WholeNumber(absl::string_view variable, absl::string_view text, int min, int max,
                                absl::string_view want) {
  int number;
  if (!absl::SimpleAtoi(text, &number) || number < min || number > max) {
    return absl::InvalidArgumentError(absl::StrCat(variable, "=", text, ": expected ", want));
  }
  return number;
}

absl::StatusOr<Duration> Seconds(const Options& options, absl::string_view name) {
  double number;
  if (!absl::SimpleAtod(options.Get(name), &number) || !(number >= 0 && number <= kYear)) {
    return BadValue(options, name, "seconds, 0 or more, such as 30 or 0.5");
  }
  return ClampedSeconds(number);
}

Duration ClampedSeconds(double number) { return milliseconds(std::llround(std::min(number, kYear) * 1000)); }

}  // namespace ddprun
