// What the ranks of a fault test record in memory that outlives them: where each rank was when it ended.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "os/descriptor.h"

namespace ddprun {

// A file that the test and all ranks map.
//   Threads: any.
class FaultBoard {
 public:
  struct Entry {
    std::atomic<int64_t> operation;  // 1 + the number of the operation in which the rank is; 0: none
    // On the monotonic clock; 0: not yet.
    std::atomic<int64_t> fault_ns;  // when the rank killed or stopped itself
    std::atomic<int64_t> error_ns;  // when an operation of the rank returned an error
    std::atomic<int64_t> ended_ns;  // when the rank had destroyed its communicators
  };
  static constexpr int kMaxRanks = 16;

  // `dir`: the directory of the store.
  explicit FaultBoard(const std::string& dir) {
    const UniqueFd fd(open((dir + "/board").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    DDPRUN_CHECK(fd && ftruncate(fd.get(), sizeof(Entry) * kMaxRanks) == 0, "cannot create the board");
    void* memory = mmap(nullptr, sizeof(Entry) * kMaxRanks, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    DDPRUN_CHECK(memory != MAP_FAILED, "cannot map the board");
    entries_ = static_cast<Entry*>(memory);
  }
  ~FaultBoard() { munmap(entries_, sizeof(Entry) * kMaxRanks); }
  FaultBoard(const FaultBoard&) = delete;
  FaultBoard& operator=(const FaultBoard&) = delete;

  void Enter(int rank, int64_t operation) { entries_[rank].operation.store(operation + 1); }
  void Exit(int rank) { entries_[rank].operation.store(0); }
  // The operation in which the rank is, or was when it ended; -1: none.
  int64_t operation(int rank) const { return entries_[rank].operation.load() - 1; }
  std::atomic<int64_t>& fault_ns(int rank) { return entries_[rank].fault_ns; }
  std::atomic<int64_t>& error_ns(int rank) { return entries_[rank].error_ns; }
  std::atomic<int64_t>& ended_ns(int rank) { return entries_[rank].ended_ns; }

 private:
  Entry* entries_;
};

}  // namespace ddprun
