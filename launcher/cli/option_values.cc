#include "launcher/cli/option_values.h"

#include <algorithm>
#include <climits>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

constexpr double kYear = 365.0 * 24 * 3600;
constexpr size_t kMaxNameBytes = 256;  // the coordinator's limit

bool ReadWhole(absl::string_view text, int min, int max, int* number) {
  return absl::SimpleAtoi(text, number) && *number >= min && *number <= max;
}

// `want`, with the upper limit added if `text` is a number that exceeds the range of int.
std::string WantOf(absl::string_view text, int max, absl::string_view want) {
  int ignored;
  const bool is_number = !text.empty() && absl::c_all_of(text, absl::ascii_isdigit);
  if (max < INT_MAX || !is_number || absl::SimpleAtoi(text, &ignored)) return std::string(want);
  return absl::StrCat(want, ", at most ", max);
}

}  // namespace

absl::Status BadValue(const Options& options, absl::string_view name, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(options.Quote(name), ": expected ", want));
}

absl::StatusOr<std::string> Name(const Options& options, absl::string_view name) {
  const std::string& text = options.Get(name);
  if (text.empty()) return BadValue(options, name, "a name");
  // Messages to other nodes would truncate longer names and replace invalid bytes.
  if (Utf8Head(text, kMaxNameBytes) == text) return text;
  return BadValue(options, name, absl::StrCat("a name in UTF-8, at most ", kMaxNameBytes, " bytes"));
}

absl::StatusOr<int> WholeNumber(const Options& options, absl::string_view name, int min, int max,
                                absl::string_view want) {
  int number;
  const std::string& text = options.Get(name);
  if (!ReadWhole(text, min, max, &number)) return BadValue(options, name, WantOf(text, max, want));
  return number;
}

absl::StatusOr<int> WholeNumber(absl::string_view variable, absl::string_view text, int min, int max,
                                absl::string_view want) {
  int number;
  if (!ReadWhole(text, min, max, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(variable, "=", text, ": expected ", WantOf(text, max, want)));
  }
  return number;
}

absl::StatusOr<Duration> Seconds(const Options& options, absl::string_view name) {
  double number;
  if (!absl::SimpleAtod(options.Get(name), &number) || !std::isfinite(number) || number < 0) {
    return BadValue(options, name, "seconds, 0 or more, such as 30 or 0.5");
  }
  return ClampedSeconds(number);
}

Duration ClampedSeconds(double number) { return milliseconds(std::llround(std::min(number, kYear) * 1000)); }

}  // namespace ddprun
