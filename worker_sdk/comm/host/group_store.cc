#include "worker_sdk/comm/host/group_store.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

void Append(std::string_view text, std::string* out) {
  const auto size = static_cast<uint32_t>(text.size());
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(text);
}

// Takes the next string off the beginning of `bytes`; nullopt at the end.
std::optional<std::string> Take(std::string_view* bytes) {
  uint32_t size;
  if (bytes->size() < sizeof(size)) return std::nullopt;
  std::memcpy(&size, bytes->data(), sizeof(size));
  bytes->remove_prefix(sizeof(size));
  if (bytes->size() < size) return std::nullopt;
  std::string text(bytes->substr(0, size));
  bytes->remove_prefix(size);
  return text;
}

template <typename T>
std::span<const char> Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

GroupStore::GroupStore(int num_ranks, std::string prefix, Gather gather)
    : num_ranks_(num_ranks), prefix_(std::move(prefix)), gather_(std::move(gather)) {}

Status GroupStore::Set(std::string_view key, std::string_view value) {
  DDPRUN_CHECK(!exchanged_, "a key is set after the exchange");
  Append(StrCat(prefix_, key), &own_);
  Append(value, &own_);
  return OkStatus();
}

StatusOr<std::string> GroupStore::Get(std::string_view key, Duration /*timeout*/) {
  if (!exchanged_) (void)Exchange();
  if (!exchange_.ok()) return exchange_;
  const auto found = values_.find(StrCat(prefix_, key));
  if (found == values_.end()) return NotFoundError(StrCat("no rank has set ", key));
  return found->second;
}

Status GroupStore::Exchange() {
  DDPRUN_CHECK(!exchanged_, "a second exchange");
  exchanged_ = true;
  return exchange_ = [&]() -> Status {
    const uint64_t size = own_.size();
    std::vector<uint64_t> sizes(num_ranks_);
    DDPRUN_RETURN_IF_ERROR(
        gather_(Bytes(size), {reinterpret_cast<char*>(sizes.data()), sizes.size() * sizeof(uint64_t)}));
    const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
    std::string mine = own_;
    mine.resize(longest);
    std::vector<char> all(num_ranks_ * longest);
    DDPRUN_RETURN_IF_ERROR(gather_(mine, all));
    for (int r = 0; r < num_ranks_; ++r) {
      std::string_view rest(all.data() + r * longest, sizes[r]);
      while (!rest.empty()) {
        std::optional<std::string> key = Take(&rest), value = Take(&rest);
        if (!key || !value) return InternalError(StrCat("rank ", r, " sent malformed keys"));
        values_[*std::move(key)] = *std::move(value);
      }
    }
    return OkStatus();
  }();
}

}  // namespace ddprun
