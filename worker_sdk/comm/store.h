// What the SDK needs of the worker store: few keys, each set once per round, by which the ranks find each
// other.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

// A view of a key-value store that belongs to one round alone: what an earlier round set is not there.
//   Threads: any number of callers.
class Store {
 public:
  virtual ~Store() = default;

  // Sets or replaces.
  //   Errors: kUnavailable: the store is gone.
  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;

  // Waits until `key` is there and returns its value.
  //   Errors: kDeadlineExceeded naming the key, the store stays usable; kUnavailable: the store is gone.
  virtual absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) = 0;
};

}  // namespace ddprun
