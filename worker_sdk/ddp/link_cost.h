// What an all-reduce costs on this communicator.
#pragma once

#include <cstdint>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/time.h"
#include "worker_sdk/ddp/bucket_plan.h"

namespace ddprun {

// Measures all-reduces that no caller waits for, as those of buckets are during backward: five of 16 KiB, and three of an
// eighth of `step_bytes`, at least 64 KiB and at most 4 MiB. That is about three eighths of the traffic of one step.
// Collective; ranks may get different results.
//   Errors: those of Work::Wait.
StatusOr<AllReduceCost> MeasureAllReduce(Communicator comm, int64_t step_bytes, TimePoint deadline);

}  // namespace ddprun
