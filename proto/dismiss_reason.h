// Dismissal on the wire, whose enum begins with UNSPECIFIED.
#pragma once

#include "base/dismissal.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

inline proto::DismissReason EncodeDismissal(Dismissal reason) {
  return static_cast<proto::DismissReason>(static_cast<int>(reason) + 1);
}

// Unknown reasons map to kFailed.
inline Dismissal DecodeDismissal(proto::DismissReason reason) {
  if (reason == proto::DISMISS_REASON_UNSPECIFIED || !proto::DismissReason_IsValid(reason)) {
    return Dismissal::kFailed;
  }
  return static_cast<Dismissal>(static_cast<int>(reason) - 1);
}

static_assert(static_cast<int>(Dismissal::kSucceeded) + 1 == proto::DISMISS_REASON_SUCCEEDED);
static_assert(static_cast<int>(Dismissal::kFailed) + 1 == proto::DISMISS_REASON_FAILED);
static_assert(static_cast<int>(Dismissal::kJoinTimeout) + 1 == proto::DISMISS_REASON_JOIN_TIMEOUT);
static_assert(static_cast<int>(Dismissal::kEvicted) + 1 == proto::DISMISS_REASON_EVICTED);
static_assert(static_cast<int>(Dismissal::kRejected) + 1 == proto::DISMISS_REASON_REJECTED);
static_assert(static_cast<int>(Dismissal::kStopped) + 1 == proto::DISMISS_REASON_STOPPED);
static_assert(static_cast<int>(Dismissal::kDrained) + 1 == proto::DISMISS_REASON_DRAINED);
static_assert(static_cast<int>(Dismissal::kCoordinatorEnded) + 1 == proto::DISMISS_REASON_COORDINATOR_ENDED);

}  // namespace ddprun
