// The part of the worker store that the SDK uses. Ranks find each other through a few keys, each of which is
// set once per round.
#pragma once

#include <string>
#include <string_view>

#include "base/time.h"
#include "ddprun/status.h"

namespace ddprun {

// A key-value store for one round: keys set in earlier rounds are not visible.
//   Threads: any number of callers.
class Store {
 public:
  virtual ~Store() = default;

  // Sets `key`, or replaces its value.
  //   Errors: kUnavailable: the store is not reachable.
  virtual Status Set(std::string_view key, std::string_view value) = 0;

  // Blocks until `key` is set and returns its value.
  //   Errors: kDeadlineExceeded: `key` was not set in time; the message names it, and the store stays usable.
  //           kUnavailable: the store is not reachable.
  virtual StatusOr<std::string> Get(std::string_view key, Duration timeout) = 0;

  // Calls that block return, and they and all later calls fail with kCancelled. Does not block. Does nothing if calls do not
  // wait for other machines, which is the default.
  virtual void Cancel() {}
};

}  // namespace ddprun
