// Why a node is let go by its job; proto/rendezvous.proto has the same. It decides the agent's exit code.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun {

enum class Dismissal {
  kSucceeded,         // the job
  kFailed,            // the job: no restart is left, or another one would not help
  kJoinTimeout,       // too few nodes came
  kEvicted,           // this node: its lease ran out, or it did not stop its workers; it may come back as new
  kRejected,          // it does not fit the job
  kStopped,           // somebody stopped the job
  kDrained,           // somebody took this node out; the job goes on without it
  kCoordinatorEnded,  // the process that hosts the coordinator
};

// No round of the job follows.
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
