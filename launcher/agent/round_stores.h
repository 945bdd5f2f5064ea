// Where the worker store of a round comes from: the agent says when, main knows how.
#pragma once

#include "absl/status/statusor.h"

namespace ddprun {

class RoundStores {
 public:
  virtual ~RoundStores() = default;
  // An empty store, listening, for the next round; the one before it, whose local workers are gone, ends.
  // Returns its port.
  //   Errors: kFailedPrecondition, kResourceExhausted: no port to be had.
  virtual absl::StatusOr<int> Offer() = 0;
  // The round meets at another node's store.
  virtual void Withdraw() = 0;
};

}  // namespace ddprun
