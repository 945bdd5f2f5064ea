// Waits for the device, with a deadline. CUDA's own waits have none.
#pragma once

#include <string_view>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/core/function_ref.h"
#include "worker_sdk/device/cuda/context.h"

namespace ddprun {

// Calls `done` until it returns true or an error, first without pauses, then with pauses that grow to 1 ms.
//   what:     for the error: "the copy of the parameters".
//   deadline: if it has passed, `done` is called once.
//   Errors:   kDeadlineExceeded: "GPU 0 has not finished <what> after 5.0 s"; those of `done`.
Status PollUntil(const CudaContext& context, TimePoint deadline, std::string_view what,
                 FunctionRef<StatusOr<bool>()> done);

}  // namespace ddprun
