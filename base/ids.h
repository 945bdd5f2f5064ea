// Ids within a job, each with a distinct type so that they cannot be confused.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace ddprun {

// An integer with a distinct type for each `Tag`. Constructed explicitly; `.value()` for codecs and text.
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

// A string with a distinct type for each `Tag`. Constructed explicitly; `.value()` for codecs and text.
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

// 0..WORLD_SIZE-1 over all nodes; reassigned in every round.
using Rank = StrongInt<struct RankTag>;
// 0..nproc-1 within one node; stable across rounds (worker i of a node stays worker i).
using LocalRank = StrongInt<struct LocalRankTag>;
// The node's own rank, torchrun's GROUP_RANK; reassigned in every round, in which surviving nodes keep their
// order.
using GroupRank = StrongInt<struct GroupRankTag>;
// One agreed membership. Numbered from 0 within a job, never reused, never decreases.
using Round = StrongInt<struct RoundTag>;
// One incarnation of an agent. A node that rejoins has a new id.
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
