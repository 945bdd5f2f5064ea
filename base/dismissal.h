// The reasons for which a job dismisses a node. The reason determines the exit code of the node's agent.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun {

// Mirrors DismissReason in proto/rendezvous.proto.
enum class Dismissal {
  kSucceeded,         // the job succeeded
  kFailed,            // the job failed: no restarts are left, or a restart would not help
  kJoinTimeout,       // too few nodes joined in time
  kEvicted,           // the lease expired, or workers did not stop; the agent may join again
  kRejected,          // the job rejected the node
  kStopped,           // the job was stopped on request
  kDrained,           // the node was removed on request; the job continues without it
  kCoordinatorEnded,  // the process that hosts the coordinator exited
  kPreempted,         // the node, or the node that hosts the coordinator, is pre-empted
  kMoved,             // the coordinator moves to another process; the agent joins it there
};

// Returns whether the job has no further rounds after it dismisses a node for this reason.
constexpr bool EndsTheJob(Dismissal d) {
  return d == Dismissal::kSucceeded || d == Dismissal::kFailed || d == Dismissal::kStopped ||
         d == Dismissal::kCoordinatorEnded;
}

// Returns whether a node dismissed for this reason takes part in no further round, so that its workers, parked ones included,
// are stopped with the grace period.
constexpr bool IsFinal(Dismissal d) {
  return EndsTheJob(d) || d == Dismissal::kDrained || d == Dismissal::kPreempted ||
         d == Dismissal::kJoinTimeout;
}

constexpr absl::string_view ToString(Dismissal d) {
  switch (d) {
    case Dismissal::kSucceeded:
      return "succeeded";
    case Dismissal::kFailed:
      return "failed";
    case Dismissal::kJoinTimeout:
      return "join timeout";
    case Dismissal::kEvicted:
      return "evicted";
    case Dismissal::kRejected:
      return "rejected";
    case Dismissal::kStopped:
      return "stopped";
    case Dismissal::kDrained:
      return "drained";
    case Dismissal::kCoordinatorEnded:
      return "coordinator ended";
    case Dismissal::kPreempted:
      return "pre-empted";
    case Dismissal::kMoved:
      return "moved";
  }
  return "?";
}

}  // namespace ddprun
