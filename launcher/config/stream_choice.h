// -r/--redirects and -t/--tee: which of a worker's streams are meant.
#pragma once

#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

struct Streams {
  bool out = false;  // stdout
  bool err = false;  // stderr
  bool operator==(const Streams&) const = default;
};

// For every local rank.
class StreamChoice {
 public:
  StreamChoice() = default;  // none of anybody's
  explicit StreamChoice(Streams all) : others_(all) {}

  Streams For(LocalRank rank) const {
    const auto it = by_rank_.find(rank.value());
    return it == by_rank_.end() ? others_ : it->second;
  }
  bool operator==(const StreamChoice&) const = default;

  // "D" for all local ranks, or "RANK:D,RANK:D" with none for the ranks not named. D is 0 (none), 1 (stdout),
  // 2 (stderr) or 3 (both). Ranks may have more digits than torchrun's one.
  //   Errors: kInvalidArgument, with what is expected.
  static absl::StatusOr<StreamChoice> Parse(absl::string_view text);

 private:
  Streams others_;
  std::map<int64_t, Streams> by_rank_;
};

}  // namespace ddprun
