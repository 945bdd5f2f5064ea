// The part of the worker store that the SDK uses: a few keys, each set once per round, through which the
// ranks find each other.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

// A key-value store for one round: keys set in earlier rounds are not visible.
//   Threads: any number of callers.
class Store {
 public:
  virtual ~Store() = default;

  // Sets `key`, or replaces its value.
  //   Errors: kUnavailable: the store is not reachable.
  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;

  // Blocks until `key` is set and returns its value.
  //   Errors: kDeadlineExceeded: `key` was not set in time; the message names it, and the store stays usable.
  //           kUnavailable: the store is not reachable.
  virtual absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) = 0;
};

}  // namespace ddprun
