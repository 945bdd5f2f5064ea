// The functions of NCCL.
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "worker_sdk/testing/gpu/misuse.h"
#include "worker_sdk/testing/gpu/nccl/communicators.h"
#include "worker_sdk/testing/gpu/nccl/declarations.h"
#include "worker_sdk/testing/gpu/nccl/reduce.h"
#include "worker_sdk/testing/gpu/nccl/rendezvous.h"
#include "worker_sdk/testing/gpu/settings.h"

using ddprun::stand_in::BytesIn;
using ddprun::stand_in::BytesOut;
using ddprun::stand_in::Cancel;
using ddprun::stand_in::CanReduce;
using ddprun::stand_in::Communicator;
using ddprun::stand_in::Communicators;
using ddprun::stand_in::Group;
using ddprun::stand_in::IsValid;
using ddprun::stand_in::Kind;
using ddprun::stand_in::Misuse;
using ddprun::stand_in::Operation;
using ddprun::stand_in::Region;
using ddprun::stand_in::SizeOf;
using ddprun::stand_in::StartRendezvous;
using ddprun::stand_in::TheDriver;
using ddprun::stand_in::TheSettings;
using ddprun::stand_in::UniqueId;
using ddprun::stand_in::WorkQueue;

namespace {

// What a call does before all else. ncclSuccess: it goes on.
ncclResult_t Enter(const char* call) {
  return TheSettings().Fails(call) ? static_cast<ncclResult_t>(TheSettings().fail_with) : ncclSuccess;
}

// Of a call that may block.
void HangIn(const char* call) {
  static const Cancel never;
  if (TheSettings().Hangs(call)) never.Wait(TheSettings().hang_ms);
}

// Adds the operation to the group of the thread; outside of a group, starts it.
ncclResult_t Start(Operation operation, const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
  const char* const call = operation.call;
  if (const ncclResult_t error = Enter(call)) return error;
  std::shared_ptr<Communicator> communicator = Communicators::Get().Find(call, comm);
  std::shared_ptr<WorkQueue> queue;
  {
    const Communicator::Call scope(*communicator, call);
    if (SizeOf(operation.dtype) == 0 || !(operation.root >= 0 && operation.root < communicator->num_ranks()))
      return ncclInvalidArgument;
    const bool reduces = operation.kind == Kind::kAllReduce || operation.kind == Kind::kReduce ||
                         operation.kind == Kind::kReduceScatter;
    if (reduces && !CanReduce(operation.dtype, operation.op)) return ncclInvalidArgument;
    queue = TheDriver().QueueOf(call, stream);
    const int device = communicator->device();
    if (queue->device() != device)
      Misuse(call, ": the stream is of device ", queue->device(), ", the communicator of device ", device);
    const int rank = communicator->rank(), num_ranks = communicator->num_ranks();
    operation.in = TheDriver().Use(call, device, in, BytesIn(operation, rank, num_ranks));
    operation.out = TheDriver().Use(call, device, out, BytesOut(operation, rank, num_ranks));
  }
  Group& group = Group::OfThread();
  group.Start();
  group.Add(std::move(communicator), std::move(queue), std::move(operation));
  return group.End(call);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const int chosen = TheSettings().nccl_version;
  *version = chosen == 0 ? NCCL_VERSION_CODE : chosen;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t error = Enter(__func__)) return error;
  static_assert(sizeof(UniqueId) <= sizeof(ncclUniqueId));
  const UniqueId made = StartRendezvous();
  *id = {};
  std::memcpy(id->internal, &made, sizeof made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (const ncclResult_t error = Enter(__func__)) return error;
  const int device = TheDriver().CurrentDevice();
  if (device < 0) Misuse(__func__, ": the thread has no current context");
  UniqueId rendezvous;
  std::memcpy(&rendezvous, id.internal, sizeof rendezvous);
  if (comm == nullptr || num_ranks < 1 || rank < 0 || rank >= num_ranks || !IsValid(rendezvous))
    return ncclInvalidArgument;
  if (config != nullptr && (config->magic != 0xCAFEBEEF || config->size > sizeof *config))
    return ncclInvalidArgument;
  const bool blocking = config == nullptr || config->blocking != 0;  // NCCL_CONFIG_UNDEF_INT: blocking
  auto communicator = Communicator::Start(__func__, num_ranks, rendezvous, rank, device, blocking);
  *comm = Communicators::Get().Add(communicator);
  Group& group = Group::OfThread();
  group.Start();
  group.Add(std::move(communicator));
  return group.End(__func__);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t error = Enter(__func__)) return error;
  const auto communicator = Communicators::Get().Find(__func__, comm);
  const Communicator::Call scope(*communicator, __func__);
  communicator->StartFinalize(__func__);
  return communicator->Result();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  HangIn(__func__);
  const auto communicator = Communicators::Get().Find(__func__, comm);
  const Communicator::Call scope(*communicator, __func__);
  communicator->Destroy(__func__);
  Communicators::Get().Remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  HangIn(__func__);
  const auto communicator = Communicators::Get().Find(__func__, comm);
  communicator->Abort(__func__);
  Communicators::Get().Remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = Communicators::Get().Find(__func__, comm)->AsyncError();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress",
  };
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm == nullptr) return "";
  const ncclResult_t error = Communicators::Get().Find(__func__, comm)->AsyncError();
  return error == ncclSuccess || error == ncclInProgress ? "" : ncclGetErrorString(error);
}

ncclResult_t ncclGroupStart() {
  Group::OfThread().Start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return Group::OfThread().End(__func__); }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return Start({__func__, Kind::kAllReduce, count, dtype, op, 0, {}, {}}, in, out, comm, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return Start({__func__, Kind::kReduce, count, dtype, op, root, {}, {}}, in, out, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return Start({__func__, Kind::kReduceScatter, count, dtype, op, 0, {}, {}}, in, out, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t dtype, ncclComm_t comm,
                           cudaStream_t stream) {
  return Start({__func__, Kind::kAllGather, count, dtype, ncclSum, 0, {}, {}}, in, out, comm, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return Start({__func__, Kind::kBroadcast, count, dtype, ncclSum, root, {}, {}}, in, out, comm, stream);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Start({__func__, Kind::kSend, count, dtype, ncclSum, peer, {}, {}}, in, nullptr, comm, stream);
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Start({__func__, Kind::kReceive, count, dtype, ncclSum, peer, {}, {}}, nullptr, out, comm, stream);
}

// As in NCCL, not in progress after the return.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* address, size_t size, void** handle) {
  const auto communicator = Communicators::Get().Find(__func__, comm);
  const Communicator::Call scope(*communicator, __func__);
  Region region = TheDriver().Use(__func__, communicator->device(), address, size);
  static std::atomic<uint64_t> next = 0x5C00'0000'0000'0000u;
  *handle = reinterpret_cast<void*>(next += 16);
  communicator->Register(*handle, std::move(region));
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const auto communicator = Communicators::Get().Find(__func__, comm);
  const Communicator::Call scope(*communicator, __func__);
  if (!communicator->Deregister(handle)) Misuse(__func__, ": no such registration: ", handle);
  return ncclSuccess;
}

}  // extern "C"
