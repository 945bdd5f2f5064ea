#include "worker_sdk/ddp/layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ddprun {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

}  // namespace

BucketLists DivideByType(std::span<const Parameter> parameters, std::span<const size_t> order,
                         const std::function<std::vector<size_t>(std::span<const size_t>)>& plan) {
  std::map<DType, std::vector<size_t>> by_type;
  std::vector<size_t> position(parameters.size());
  for (size_t i = 0; i < order.size(); ++i) {
    by_type[parameters[order[i]].value.dtype].push_back(order[i]);
    position[order[i]] = i;
  }
  BucketLists buckets;
  for (const auto& [dtype, members] : by_type) {
    auto next = members.begin();
    for (const size_t count : plan(members)) {
      buckets.emplace_back(next, next + static_cast<ptrdiff_t>(count));
      next += static_cast<ptrdiff_t>(count);
    }
  }
  std::ranges::sort(buckets, {}, [&](const std::vector<size_t>& bucket) { return position[bucket.back()]; });
  return buckets;
}

std::vector<int64_t> Encode(const BucketLists& buckets) {
  std::vector<int64_t> numbers;
  for (const std::vector<size_t>& bucket : buckets) {
    for (const size_t i : bucket) {
      numbers.push_back(static_cast<int64_t>(i));
      numbers.push_back(i == bucket.back() ? 1 : 0);
    }
  }
  return numbers;
}

std::optional<BucketLists> Decode(std::span<const int64_t> numbers, std::span<const Parameter> parameters) {
  if (numbers.size() != 2 * parameters.size()) return std::nullopt;
  BucketLists buckets;
  std::vector<char> seen(parameters.size());
  bool open = false;
  for (size_t n = 0; n < numbers.size(); n += 2) {
    const auto i = static_cast<size_t>(numbers[n]);
    if (i >= parameters.size() || std::exchange(seen[i], 1) != 0) return std::nullopt;
    if (!open) buckets.emplace_back();
    buckets.back().push_back(i);
    if (parameters[i].value.dtype != parameters[buckets.back()[0]].value.dtype) return std::nullopt;
    open = numbers[n + 1] == 0;
  }
  return open ? std::nullopt : std::optional(std::move(buckets));
}

Layout LayOut(std::span<const Parameter> parameters, const BucketLists& buckets, int64_t extra) {
  Layout layout;
  layout.slots.resize(parameters.size());
  size_t position = 0;
  for (const std::vector<size_t>& members : buckets) {
    const DType dtype = parameters[members[0]].value.dtype;
    int64_t& end = layout.totals[static_cast<size_t>(dtype)];
    Layout::Bucket bucket{.dtype = dtype, .begin = end, .count = 0, .parameters = members};
    for (const size_t i : members) {
      Slot& slot = layout.slots[i];
      slot.begin = end;
      slot.count = parameters[i].value.count;
      const int64_t step = kAlignment / SizeOf(dtype);
      slot.allocated = (slot.count + extra + step - 1) / step * step;
      slot.bucket = layout.buckets.size();
      slot.position = position++;
      end += slot.allocated;
    }
    bucket.count = end - bucket.begin;
    layout.buckets.push_back(std::move(bucket));
  }
  return layout;
}

}  // namespace ddprun
