// The regions of a group, and where in them an operation's memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker_sdk/comm/host/place.h"
#include "worker_sdk/comm/host/region.h"

namespace ddprun {

//   Threads: one caller.
class Regions {
 public:
  explicit Regions(int local_rank) : local_rank_(local_rank) {}

  void Add(std::shared_ptr<Region> region) { regions_.push_back(std::move(region)); }
  // Forgets the regions that no rank uses any more.
  void Clean() {
    std::erase_if(regions_, [](const auto& region) { return region->IsReleased(); });
  }

  // Communication is over: see Region::Retire.
  void Retire() {
    for (const auto& region : regions_) region->Retire(local_rank_);
    regions_.clear();
  }

  // The place of this rank's memory from `begin` to `begin + num_bytes - 1`.
  Place Find(const void* begin, size_t num_bytes) const {
    const auto* first = static_cast<const char*>(begin);
    for (const auto& region : regions_) {
      const char* part = region->part(local_rank_);
      if (part <= first && first + num_bytes <= part + region->part_bytes()) {
        return {.region = 1 + region->id(), .offset = static_cast<uint64_t>(first - part)};
      }
    }
    return {};
  }

  // Where `place` of `local_rank` is mapped in this process; null if only that rank can access it.
  char* At(const Place& place, int local_rank) const {
    if (place.region == 0) return nullptr;
    for (const auto& region : regions_) {
      if (1 + region->id() == place.region) return region->part(local_rank) + place.offset;
    }
    return nullptr;
  }

 private:
  const int local_rank_;
  std::vector<std::shared_ptr<Region>> regions_;
};

}  // namespace ddprun
