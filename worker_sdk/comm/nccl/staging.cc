#include "worker_sdk/comm/nccl/staging.h"

#include <algorithm>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Kind = StagingAction::Kind;

StagingAction Finish(const Status& status) { return {Kind::kFinish, status}; }

// The window holds the bytes of a Send from num_moved on.
bool MayCopy(const StagingView& view) {
  if (view.copying || !view.stream_reached || view.num_copied == view.num_bytes) return false;
  const uint64_t end = EndOfPiece(view);
  return view.sends ? end <= view.num_moved + 2 * view.piece_bytes : end <= view.num_moved;
}

// The message has failed with `error`.
StagingAction Fail(const StagingView& view, const Status& error, TimePoint now) {
  const bool copies = view.copying && !view.copy_finished && !view.device_lost;
  if (view.host_finished && !copies) return Finish(error);
  if (copies && view.fabric_ended && now - view.ended_since >= kCopyLimit) {
    return Finish(InternalError(
        StrCat(error.message(),
               "; a copy on the GPU has not finished since, so it may still access the memory of the "
               "operation: exit the process")));
  }
  return {};
}

}  // namespace

uint64_t EndOfPiece(const StagingView& view) {
  return std::min(view.num_copied + view.piece_bytes, view.num_bytes);
}

uint64_t NumReady(const StagingView& view) {
  return view.sends ? view.num_copied : std::min(view.num_copied + 2 * view.piece_bytes, view.num_bytes);
}

StagingAction DecideStaging(const StagingView& view, TimePoint now) {
  if (!view.device_error.ok()) {
    if (!view.fabric_ended) return {Kind::kEndFabric, view.device_error};
    return Fail(view, view.fabric_error, now);
  }
  if (view.host_finished && !view.host_result.ok()) return Fail(view, view.host_result, now);
  if (view.copying && view.copy_finished) return {Kind::kCount};
  if (MayCopy(view)) return {Kind::kCopy};
  const bool complete = view.num_copied == view.num_bytes && !view.copying;
  if (view.host_finished && complete) return Finish(OkStatus());
  if (view.fabric_ended) return Fail(view, view.fabric_error, now);
  if (view.copying || view.gave_up || now < view.deadline) return {};
  return {view.host_finished ? Kind::kGiveUpStream : Kind::kGiveUp};
}

}  // namespace ddprun
