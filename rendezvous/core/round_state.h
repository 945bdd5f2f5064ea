// The states of RoundMachine. Each has its own data and deadlines: they begin and end with the state.
#pragma once

#include <optional>
#include <variant>

#include "base/dismissal.h"
#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/core/job_report.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// A round that has been sealed. Running and Draining hold it one after the other.
struct ActiveRound {
  Round number = {};
  TimePoint sealed_at = {};
  bool failed = false;         // it ended by a failure
  bool finishing = false;      // the workers of a node have exited with 0
  bool step_reported = false;  // by any worker
  RoundLosses losses = {};
  int unplanned_losses = 0;  // nodes that were lost, and did not leave
};

// Nodes join; no member has workers.
struct Gathering {
  TimePoint since = {};
  std::optional<TimePoint> last_call_end = {};  // set while min_nodes are there; the round is sealed then
  std::optional<TimePoint> pause_end = {};      // no round is sealed before
};

// A snapshot was asked for before the round is ended.
struct SnapshotAsked {
  InterruptReason why = {};
  TimePoint end = {};  // the round is ended without a snapshot then
};

// The workers of the round run.
struct Running {
  ActiveRound round = {};
  std::optional<TimePoint> last_call_end = {};  // set while there are newcomers to let in
  std::optional<SnapshotAsked> asked = {};
};

// The nodes of the round stop their workers.
struct Draining {
  ActiveRound round = {};
  EndOfRound end_reason = {};
  std::optional<TimePoint> end = {};           // none: it is over; only leases are waited for
  std::optional<CloseRequested> closing = {};  // the job ends with the round
};

// Final.
struct Closed {
  Dismissal outcome = Dismissal::kSucceeded;
  EndOfJob why = {};
};

using RoundState = std::variant<Gathering, Running, Draining, Closed>;

}  // namespace ddprun
