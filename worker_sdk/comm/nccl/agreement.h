// Exchanges of small values among the ranks of a group, before operations on GPUs are possible or while they are not.
#pragma once

#include <cstdint>
#include <vector>

#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "ddprun/time.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/library.h"

namespace ddprun {

// Collective. `mine` of each rank, by rank.
template <typename T>
StatusOr<std::vector<T>> Gather(HostGroupInterface& host, const T& mine, TimePoint deadline) {
  std::vector<T> all(host.size());
  const internal::Call call{
      .kind = internal::OpKind::kAllGather, .dtype = DType::kUInt8, .num_bytes = sizeof(mine)};
  DDPRUN_RETURN_IF_ERROR(host.Start(call, &mine, all.data())->Wait(deadline));
  return all;
}

// Collective. OK if `mine` is OK on all ranks; otherwise the error of the first rank that has one, with its number.
Status Agree(HostGroupInterface& host, const Status& mine, TimePoint deadline);

// Collective. OK if all ranks have the same version of NCCL, also the same patch, as NCCL requires.
//   Errors: kFailedPrecondition: they have not; names two ranks and their versions, the same on all ranks.
Status AgreeOnVersion(HostGroupInterface& host, const NcclLibrary& library, TimePoint deadline);

}  // namespace ddprun
