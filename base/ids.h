// Ranks and ids within a job. Each kind has its own type, so that confusing two kinds is a compile error.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace ddprun {

// An integer with a distinct type for each `Tag`. Conversions are explicit: the constructor converts from
// int64_t, and value() converts to int64_t.
template <typename Tag>
class StrongInt {
 public:
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(int64_t value) : value_(value) {}
  [[nodiscard]] constexpr int64_t value() const { return value_; }
  constexpr auto operator<=>(const StrongInt&) const = default;

  friend std::ostream& operator<<(std::ostream& os, StrongInt n) { return os << n.value_; }
  template <typename H>
  friend H AbslHashValue(H h, StrongInt n) {
    return H::combine(std::move(h), n.value_);
  }

 private:
  int64_t value_ = 0;
};

// A string with a distinct type for each `Tag`. Conversions are explicit: the constructor converts from
// std::string, and value() converts to std::string.
template <typename Tag>
class StrongString {
 public:
  StrongString() = default;
  explicit StrongString(std::string value) : value_(std::move(value)) {}
  [[nodiscard]] const std::string& value() const { return value_; }
  [[nodiscard]] bool empty() const { return value_.empty(); }
  auto operator<=>(const StrongString&) const = default;

  friend std::ostream& operator<<(std::ostream& os, const StrongString& s) { return os << s.value_; }
  template <typename H>
  friend H AbslHashValue(H h, const StrongString& s) {
    return H::combine(std::move(h), s.value_);
  }

 private:
  std::string value_;
};

// The rank of a worker among all workers of a round, 0..WORLD_SIZE-1. Reassigned in every round.
using Rank = StrongInt<struct RankTag>;
// The rank of a worker within its node, 0..LOCAL_WORLD_SIZE-1. The same in every round.
using LocalRank = StrongInt<struct LocalRankTag>;
// The rank of a node, which torchrun calls GROUP_RANK. Reassigned in every round; surviving nodes keep their
// relative order.
using GroupRank = StrongInt<struct GroupRankTag>;
// The number of a round within its job, starting at 0. A number is never reused and never decreases.
using Round = StrongInt<struct RoundTag>;
// Identifies one incarnation of an agent. A node that rejoins has a new id.
using NodeId = StrongString<struct NodeIdTag>;

}  // namespace ddprun

template <typename Tag>
struct std::hash<ddprun::StrongInt<Tag>> {
  size_t operator()(ddprun::StrongInt<Tag> n) const noexcept { return std::hash<int64_t>()(n.value()); }
};
template <typename Tag>
struct std::hash<ddprun::StrongString<Tag>> {
  size_t operator()(const ddprun::StrongString<Tag>& s) const noexcept {
    return std::hash<std::string>()(s.value());
  }
};
