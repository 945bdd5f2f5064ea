// Memory for one Buffer of every rank of a node, mapped by all of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "ddprun/status.h"

namespace ddprun {

// A range of the node's memfd: a page with the control block, and then one part for each rank. The mapping exists as long
// as this object, or until Retire. The pages are freed once all ranks have released the region, or their processes have
// ended.
//   Threads: any, except that Reserve has one caller.
class Region {
 public:
  // The bytes of the memfd that a region takes; UINT64_MAX if the number is out of range.
  static uint64_t SizeOf(int num_ranks, size_t part_bytes);

  // Maps the region at `offset` of `fd`. Does not allocate pages.
  //   fd:      used only during this call and by Reserve.
  //   id:      number of the region in its group, the same on all ranks.
  //   Errors:  kResourceExhausted: no address space is left.
  static StatusOr<std::shared_ptr<Region>> Map(int fd, off_t offset, uint32_t id, int num_ranks,
                                               size_t part_bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Allocates the pages of this rank's part, with zeros, so that no later access can fail.
  //   Errors: kResourceExhausted.
  Status Reserve(int fd, int local_rank);

  // Frees the pages of this rank's part. For a region that no rank uses, because another rank could not map it: that rank
  // never calls Release, so the last release does not happen.
  void Discard(int local_rank);

  uint32_t id() const { return id_; }
  size_t part_bytes() const { return part_bytes_; }
  char* part(int local_rank) const;

  // This rank no longer uses its part. Call it once. The last rank that calls it frees the pages; after Retire, each rank
  // frees those of its part.
  void Release();
  // True if all ranks have called Release: no rank accesses the region again.
  //   REQUIRES: Retire was not called.
  bool IsReleased() const;

  // Communication is over: only the part of this rank stays, until this object is gone. Pages without access replace the rest
  // of the mapping, so that its addresses are not used otherwise, and a forgotten access is a SIGSEGV.
  void Retire(int local_rank);

 private:
  Region(char* base, off_t offset, uint32_t id, int num_ranks, size_t part_bytes)
      : base_(base), offset_(offset), id_(id), num_ranks_(num_ranks), part_bytes_(part_bytes) {}
  struct Control;
  Control& control() const;
  size_t Stride() const;
  // Replaces the mapping from `begin` to `end` - 1.
  static void MakeInaccessible(char* begin, char* end);

  char* const base_;
  const off_t offset_;
  const uint32_t id_;
  const int num_ranks_;
  const size_t part_bytes_;
  std::mutex mu_;  // guards the members below
  bool released_ = false;
  std::optional<int> retired_;  // the local rank, after Retire
};

}  // namespace ddprun
