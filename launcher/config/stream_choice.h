// Values of -r/--redirects and -t/--tee: a set of streams for each local rank.
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

// The chosen streams of every local rank.
class StreamChoice {
 public:
  StreamChoice() = default;  // no streams
  explicit StreamChoice(Streams all) : others_(all) {}

  Streams For(LocalRank rank) const {
    const auto it = by_rank_.find(rank.value());
    return it == by_rank_.end() ? others_ : it->second;
  }
  bool operator==(const StreamChoice&) const = default;

  // Parses "D" for all local ranks, or "RANK:D,RANK:D", where ranks that are not listed get no streams. D is
  // 0 (none), 1 (stdout), 2 (stderr) or 3 (both). Unlike in torchrun, ranks may have several digits.
  //   Errors: kInvalidArgument, with the expected form.
  static absl::StatusOr<StreamChoice> Parse(absl::string_view text);

 private:
  Streams others_;
  std::map<int64_t, Streams> by_rank_;
};

}  // namespace ddprun
