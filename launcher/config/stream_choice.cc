#include "launcher/config/stream_choice.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

std::optional<Streams> ParseStreams(absl::string_view digit) {
  if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') return std::nullopt;
  const int bits = digit[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

}  // namespace

absl::StatusOr<StreamChoice> StreamChoice::Parse(absl::string_view text) {
  if (const auto all = ParseStreams(text)) return StreamChoice(*all);
  StreamChoice choice;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, ':');
    int rank;
    const auto streams = ParseStreams(parts.back());
    if (parts.size() != 2 || parts[0].empty() || parts[0][0] < '0' || parts[0][0] > '9' ||
        !absl::SimpleAtoi(parts[0], &rank) || !streams) {
      return absl::InvalidArgumentError(
          "expected 0, 1, 2 or 3 (none, stdout, stderr, both) for all workers, or LOCAL_RANK:DIGIT,... for "
          "some");
    }
    choice.by_rank_[rank] = *streams;
  }
  return choice;
}

}  // namespace ddprun
