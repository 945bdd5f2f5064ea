// The store through which the ranks of a new group find each other: collective operations of the parent group.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "ddprun/status.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

// Keys that are set before the first Get become visible to all ranks of the parent group in one exchange; the first Get
// starts it. Keys of ranks with different prefixes are separate.
//   Threads: one caller.
class GroupStore : public Store {
 public:
  // An all-gather of the parent group: sets part r of `out` to `in` of rank r.
  //   Shapes: in [n], out [ranks of the parent * n].
  using Gather = std::function<Status(std::span<const char> in, std::span<char> out)>;

  GroupStore(int num_ranks, std::string prefix, Gather gather);

  Status Set(std::string_view key, std::string_view value) override;
  StatusOr<std::string> Get(std::string_view key, Duration timeout) override;

  // Collective, at most once. Every rank of the parent group calls this or Get.
  Status Exchange();
  // True if this rank has taken part in the exchange, even if it failed.
  [[nodiscard]] bool exchanged() const { return exchanged_; }

 private:
  const int num_ranks_;
  const std::string prefix_;
  const Gather gather_;
  bool exchanged_ = false;
  Status exchange_;
  std::string own_;  // the keys and values that this rank has set, as a sequence of length-prefixed strings
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace ddprun
