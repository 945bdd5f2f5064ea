// How the size of the job may change, and when failures end it although restarts are left.
#pragma once

#include "absl/status/statusor.h"
#include "base/scale_up.h"
#include "base/time.h"
#include "launcher/config/options.h"

namespace ddprun {

// The same on all nodes of a job.
struct ElasticRules {
  int node_unit = 1;  // rounds have a multiple of it; so have the minimum and the maximum
  ScaleUp scale_up = ScaleUp::kImmediate;
  Duration snapshot_timeout = seconds(60);  // for a snapshot that was asked for
  Duration min_uptime = Duration::zero();   // a worker that fails earlier ends the job; 0: none does
  int max_restarts_without_progress = 3;    // of workers that report their steps; 0: any number
  bool operator==(const ElasticRules&) const = default;
};

// Errors: kInvalidArgument: a value that is none; a minimum or maximum that is no multiple of the unit.
absl::StatusOr<ElasticRules> ReadElasticRules(const Options& options, int min_nodes, int max_nodes);

}  // namespace ddprun
