// What communicator.h promises for messages of memory of GPUs, in all worlds. The functions are cases of GpuContract.
#pragma once

#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"

namespace ddprun {

void RanksOfARingSendFirst(GpuRank& gpu);
void LargeMessagesOfAllPairsAreInFlightTogether(GpuRank& gpu);
void MessagesOfBothKindsMatchInTheirOrder(GpuRank& gpu);
void StreamsWaitForMessages(GpuRank& gpu);
void PartsHaveMessagesOfTheirOwn(GpuRank& gpu);

}  // namespace ddprun
