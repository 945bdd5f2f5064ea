// The `nccl` backend: operations on memory of GPUs run through NCCL, those on memory of the host in a group of the host
// backend. The host group finds the other ranks, exchanges NCCL's id, and names a rank that has died, which NCCL cannot.
#pragma once

#include <memory>

#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/library.h"
#include "worker_sdk/device/cuda/context.h"

namespace ddprun {

// A GPU with what its operations need.
struct NcclDevice {
  std::shared_ptr<const CudaContext> context;
  const NcclLibrary* nccl = nullptr;  // static lifetime
};

// Opens the libraries and the context of a GPU.
//   device:     as ConnectOptions::device.
//   local_rank: the index if device.index is -1 and the process sees more than one GPU.
//   Errors:     kFailedPrecondition: no driver, no GPU, an old driver, no NCCL or one of another version;
//               kInvalidArgument: there is no such GPU; the message says what is missing.
StatusOr<NcclDevice> OpenNcclDevice(const Device& device, int local_rank);

// Collective over the ranks of `host`. Adds operations on GPUs to a host group. Returns once all ranks are connected.
//   device: this rank's GPU, or why it has none: that error is then the error of all ranks, with the rank's name.
//   Errors: those of `device`; kUnavailable: NCCL failed; kFailedPrecondition: the ranks have
//           different versions of NCCL; kDeadlineExceeded: the setup timeout of host->options() passed; names the ranks
//           that are stopped, if that is why. Communication has then ended on all ranks.
//   Threads of the group: those of Group. A thread of its own makes all calls of NCCL, and watches operations in flight.
//   Destructor: as that of Communicator. Blocks at most 1 s more while NCCL completes operations on other ranks.
StatusOr<std::shared_ptr<internal::Group>> CreateNcclGroup(std::shared_ptr<HostGroupInterface> host,
                                                           const StatusOr<NcclDevice>& device);

}  // namespace ddprun
