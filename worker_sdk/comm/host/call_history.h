// Finds calls that differ among ranks where the operations themselves do not: NCCL waits for ever if they differ.
//
// A rank whose operation has not completed for a while sends a note with its last calls (record.h) to all ranks of the group.
// Each rank compares it with its own calls.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/record.h"

namespace ddprun {

// The last calls of a rank, with a running hash of all its calls.
class CallHistory {
 public:
  // How many calls are known. Memory is used only once there are calls.
  static constexpr uint64_t kCapacity = 1024;

  // REQUIRES: call.index == num_calls().
  void Add(const internal::Call& call);
  [[nodiscard]] uint64_t num_calls() const { return num_calls_; }

  // The call `index` and up to five before it. nullopt if that call is not known (any more).
  [[nodiscard]] std::optional<CallNote> NoteOf(uint64_t index) const;

  struct Difference {
    internal::Call own;
    internal::Call other;
    // The calls that differ are before these two, and are not known any more.
    bool earlier = false;
  };
  // The first difference between these calls and those of `note`. nullopt if there is none among the calls that both have.
  [[nodiscard]] std::optional<Difference> Compare(const CallNote& note) const;

 private:
  struct Entry {
    internal::Call call;
    uint64_t hash_before = 0;  // of all calls before this one
  };
  [[nodiscard]] bool Knows(uint64_t index) const {
    return index < num_calls_ && index + kCapacity >= num_calls_;
  }
  [[nodiscard]] const Entry& at(uint64_t index) const { return entries_[index % kCapacity]; }

  std::vector<Entry> entries_;  // call i is entry i % kCapacity
  uint64_t num_calls_ = 0;
  uint64_t hash_ = 0;
};

// The history of this rank, and a note of another rank that has made a call which this rank has not made yet.
//   Threads: any.
class CallComparison {
 public:
  // rank: this one, by its number in the world. operation: what the calls are, for errors: "GPU operation".
  CallComparison(int64_t round, int rank, const char* operation)
      : round_(round), rank_(rank), operation_(operation) {}

  // This rank makes the next call. REQUIRES: call.index is the number of earlier calls.
  //   Errors: kInvalidArgument: it differs from that of another rank; the error names both ranks and both calls.
  Status Add(const internal::Call& call);
  // Rank `rank` of the world has sent `note`. Errors: as Add.
  Status Receive(int rank, const CallNote& note);
  // As CallHistory::NoteOf.
  [[nodiscard]] std::optional<CallNote> NoteOf(uint64_t index) const;

 private:
  struct Pending {
    int rank = 0;
    CallNote note;
  };
  // REQUIRES: mu_ is held.
  [[nodiscard]] Status Compare(const Pending& with) const;

  const int64_t round_;
  const int rank_;
  const char* const operation_;
  mutable std::mutex mu_;  // guards the members below
  CallHistory history_;
  // Of the notes whose last call this rank has not made yet, the one with the earliest last call: this rank makes that call
  // first. Ranks that still wait then send again.
  std::optional<Pending> pending_;
};

}  // namespace ddprun
