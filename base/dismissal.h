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
};

// Returns whether the job has no further rounds after it dismisses a node for this reason.
constexpr bool EndsTheJob(Dismissal d) {
  return d == Dismissal::kSucceeded || d == Dismissal::kFailed || d == Dismissal::kStopped ||
         d == Dismissal::kCoordinatorEnded;
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
  }
  return "?";
}

}  // namespace ddprun
