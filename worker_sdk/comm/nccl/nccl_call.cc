#include "worker_sdk/comm/nccl/nccl_call.h"

#include <cstddef>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using internal::Call;
using internal::OpKind;

bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

// NCCL has no all-to-all in the versions that are accepted. The sends and receives of a group do not wait for each other.
ncclResult_t AllToAll(const NcclLibrary& library, const void* in, void* out, size_t part_bytes, int size,
                      ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = library.ncclGroupStart();
  for (int peer = 0; peer < size && Accepted(result); ++peer) {
    const size_t begin = peer * part_bytes;
    result =
        library.ncclSend(static_cast<const char*>(in) + begin, part_bytes, ncclUint8, peer, comm, stream);
    if (!Accepted(result)) break;
    result = library.ncclRecv(static_cast<char*>(out) + begin, part_bytes, ncclUint8, peer, comm, stream);
  }
  const ncclResult_t ended = library.ncclGroupEnd();  // also after an error
  return Accepted(result) ? ended : result;
}

}  // namespace

StatusOr<ncclResult_t> CallNccl(const NcclLibrary& library, const Call& call, const void* in, void* out,
                                int size, ncclComm_t comm, cudaStream_t stream) {
  DDPRUN_ASSIGN_OR_RETURN(const ncclDataType_t type, NcclTypeOf(call.dtype));
  const size_t count = call.num_bytes / SizeOf(call.dtype);
  ncclRedOp_t op = ncclSum;
  if (Reduces(call.kind)) {
    DDPRUN_ASSIGN_OR_RETURN(op, NcclOperatorOf(call.op, call.dtype));
  }
  switch (call.kind) {
    case OpKind::kAllReduce:
      return library.ncclAllReduce(in, out, count, type, op, comm, stream);
    case OpKind::kReduce:
      return library.ncclReduce(in, out, count, type, op, call.root, comm, stream);
    case OpKind::kReduceScatter:
      return library.ncclReduceScatter(in, out, count / size, type, op, comm, stream);
    case OpKind::kAllGather:
      return library.ncclAllGather(in, out, count, type, comm, stream);
    case OpKind::kAllToAll:
      return AllToAll(library, in, out, call.num_bytes / size, size, comm, stream);
    case OpKind::kBroadcast:
      return library.ncclBroadcast(in, out, count, type, call.root, comm, stream);
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kReceive:
      break;
  }
  return InvalidArgumentError(StrCat(NameOf(call.kind), " of memory of a GPU is not supported"));
}

}  // namespace ddprun
