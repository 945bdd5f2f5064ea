// The rules of a job, fixed when its first node joins.
#pragma once

#include "base/scale_up.h"
#include "base/time.h"

namespace ddprun {

//   REQUIRES: 1 <= min_nodes <= max_nodes, both multiples of node_unit >= 1; the other numbers and all
//             durations >= 0; lease > 0.
struct RoundPolicy {
  int min_nodes = 1;
  int max_nodes = 1;
  // Failures that may be answered by a new round. Membership changes are free.
  int max_restarts = 0;
  // How long the first round waits for more nodes once it has min_nodes.
  Duration first_last_call = seconds(30);
  // The same for later rounds, and how long newcomers to a running job are collected before it is interrupted
  // for them.
  Duration last_call = seconds(30);
  // How long a node waits for a round to be sealed.
  Duration join_timeout = seconds(600);
  // How long a node counts as alive after its last message.
  Duration lease = seconds(5);
  // Rounds have a multiple of so many nodes; more of them wait as spares.
  int node_unit = 1;
  ScaleUp scale_up = ScaleUp::kImmediate;
  // How long workers may take for a snapshot that they were asked for; the round ends without it then.
  Duration snapshot_timeout = seconds(60);
  // A failure earlier in a worker's life than this, and before its first step, ends the job: another start
  // would end the same way. 0: none does.
  Duration min_uptime = Duration::zero();
  // After so many restarts in a row that have not brought the job beyond its furthest step, the next failure
  // ends it. Only for jobs whose workers report steps. 0: any number.
  int max_restarts_without_progress = 0;

  bool operator==(const RoundPolicy&) const = default;
};

}  // namespace ddprun
