#include "worker_sdk/comm/call.h"

#include "base/operation_page.h"
#include "worker_sdk/core/strings.h"

namespace ddprun::internal {

const char* NameOf(OpKind kind) { return ddprun::NameOf(static_cast<OperationKind>(kind)); }

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}

std::string Describe(const Call& call) {
  if (call.purpose == Purpose::kSplit) return "split";
  if (call.purpose == Purpose::kAllocate) return "allocate";
  std::string text = NameOf(call.kind);
  if (call.kind == OpKind::kBarrier) return text;
  if (Reduces(call.kind)) text += StrCat(" (", ddprun::NameOf(call.op), ")");
  const int64_t size = SizeOf(call.dtype);
  text += StrCat(" of ", size > 0 ? call.num_bytes / size : call.num_bytes, " ", ddprun::NameOf(call.dtype));
  if (call.kind == OpKind::kReduce) text += StrCat(" to rank ", call.root);
  if (call.kind == OpKind::kBroadcast) text += StrCat(" from rank ", call.root);
  return text;
}

Status CallsDiffer(int64_t round, std::string_view who, const Call& call, std::string_view other_who,
                   const Call& other, std::string_view operation) {
  return InvalidArgumentError(StrCat("the calls of round ", round, " differ: ", operation, " ", call.index,
                                     " of ", who, " is ", Describe(call), ", ", operation, " ", other.index,
                                     " of ", other_who, " is ", Describe(other)));
}

}  // namespace ddprun::internal
