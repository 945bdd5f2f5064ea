#include "worker_sdk/comm/host/ring_channel.h"

#include <algorithm>
#include <span>
#include <utility>

#include "ddprun/status.h"

namespace ddprun {
namespace {

// Bytes that one step copies. The sender fills one piece while the receiver empties another one.
constexpr size_t kPiece = 64 << 10;

}  // namespace

PairRing* RingChannel::Open(End& end) {
  if (end.ring) return &*end.ring;
  if (!error_.ok()) return nullptr;
  StatusOr<PairRingMemory> memory = PairRingMemory::Map(end.fd, end.offset);
  if (!memory.ok()) {
    error_ = memory.status();
    return nullptr;
  }
  end.memory.emplace(*std::move(memory));
  return &end.ring.emplace(end.memory->get());
}

Moved RingChannel::Send(Transfer& t) {
  PairRing* const ring = Open(out_);
  if (ring == nullptr || (t.begun && t.is_starved())) return Moved::kNone;
  size_t room = ring->Room(std::min(sizeof(t.call) + t.num_left(), kPiece));
  if (!t.begun) {
    if (room < sizeof(t.call)) return Moved::kNone;
    ring->Put(&t.call, sizeof(t.call));
    room -= sizeof(t.call);
    t.begun = true;
  } else if (room == 0) {
    return Moved::kNone;
  }
  const std::span<char> next = t.next();
  const size_t n = std::min({room, next.size(), kPiece});
  ring->Put(next.data(), n);
  t.num_moved += n;
  const bool all = t.num_left() == 0;
  if (all) ring->EndMessage();
  ring->Publish();
  peer_->Ring();
  return all ? Moved::kAll : Moved::kSome;
}

Moved RingChannel::Receive(Transfer& t) {
  PairRing* const ring = Open(in_);
  if (ring == nullptr || (t.begun && t.is_starved())) return Moved::kNone;
  size_t available = ring->Available();
  if (available == 0) return Moved::kNone;
  if (!t.begun) {
    internal::Call call;  // is published at once
    ring->Take(&call, sizeof(call));
    available -= sizeof(call);
    if (call != t.call) {
      foreign_ = call;
      return Moved::kForeign;
    }
    t.begun = true;
  }
  const std::span<char> next = t.next();
  const size_t n = std::min({available, next.size(), kPiece});
  ring->Take(next.data(), n);
  t.num_moved += n;
  const bool all = t.num_left() == 0;
  if (all) ring->EndMessage();
  ring->Release();
  peer_->Ring();
  return all ? Moved::kAll : Moved::kSome;
}

}  // namespace ddprun
