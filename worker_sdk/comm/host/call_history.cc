#include "worker_sdk/comm/host/call_history.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using internal::Call;

// The hash of some calls and of `call` after them. Equal on all ranks; not secure.
uint64_t HashWith(uint64_t hash, const Call& call) {
  static_assert(std::has_unique_object_representations_v<Call>);
  std::array<uint64_t, sizeof(Call) / sizeof(uint64_t)> words;
  std::memcpy(words.data(), &call, sizeof(call));
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

void CallHistory::Add(const Call& call) {
  if (entries_.empty()) entries_.resize(kCapacity);
  entries_[call.index % kCapacity] = {.call = call, .hash_before = hash_};
  hash_ = HashWith(hash_, call);
  num_calls_ = call.index + 1;
}

std::optional<CallNote> CallHistory::NoteOf(uint64_t index) const {
  if (!Knows(index)) return std::nullopt;
  const uint64_t oldest = num_calls_ > kCapacity ? num_calls_ - kCapacity : 0;
  const uint64_t first = std::max(oldest, index < CallNote::kMaxCalls ? 0 : index + 1 - CallNote::kMaxCalls);
  CallNote note{.hash_before = at(first).hash_before};
  for (uint64_t i = first; i <= index; ++i) note.calls[note.num_calls++] = at(i).call;
  return note;
}

std::optional<CallHistory::Difference> CallHistory::Compare(const CallNote& note) const {
  uint64_t hash = note.hash_before;
  for (uint32_t i = 0; i < note.num_calls; ++i) {
    const Call& other = note.calls[i];
    if (Knows(other.index)) {
      const Entry& own = at(other.index);
      if (own.hash_before != hash) return Difference{.own = own.call, .other = other, .earlier = true};
      if (own.call != other) return Difference{.own = own.call, .other = other};
    }
    hash = HashWith(hash, other);
  }
  return std::nullopt;
}

Status CallComparison::Compare(const Pending& with) const {
  const auto difference = history_.Compare(with.note);
  if (!difference) return OkStatus();
  const std::string own = StrCat("rank ", rank_), other = StrCat("rank ", with.rank);
  if (!difference->earlier) {
    return internal::CallsDiffer(round_, own, difference->own, other, difference->other, operation_);
  }
  return InvalidArgumentError(
      StrCat("the calls of round ", round_, " differ before ", operation_, " ", difference->own.index, ": ",
             own, " and ", other, " have made other calls than each other. That one is ",
             Describe(difference->own), " on ", own, " and ", Describe(difference->other), " on ", other));
}

Status CallComparison::Add(const Call& call) {
  const std::lock_guard<std::mutex> lock(mu_);
  history_.Add(call);
  if (!pending_) return OkStatus();
  const Status compared = Compare(*pending_);
  if (call.index >= pending_->note.last().index) pending_.reset();
  return compared;
}

Status CallComparison::Receive(int rank, const CallNote& note) {
  const std::lock_guard<std::mutex> lock(mu_);
  const Pending received{.rank = rank, .note = note};
  const uint64_t last = note.last().index;
  if (last >= history_.num_calls() && (!pending_ || last < pending_->note.last().index)) pending_ = received;
  return Compare(received);
}

std::optional<CallNote> CallComparison::NoteOf(uint64_t index) const {
  const std::lock_guard<std::mutex> lock(mu_);
  return history_.NoteOf(index);
}

}  // namespace ddprun
