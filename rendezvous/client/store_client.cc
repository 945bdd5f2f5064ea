#include "rendezvous/client/store_client.h"

#include <utility>

#include "absl/strings/str_join.h"

namespace ddprun {
namespace {

constexpr size_t kKeysNamed = 8;

}  // namespace

std::vector<std::string> StoreKeys(const std::vector<std::string>& keys) {
  std::vector<std::string> store_keys;
  store_keys.reserve(keys.size());
  for (const std::string& key : keys) store_keys.push_back(StoreKey(key));
  return store_keys;
}

std::vector<std::string> UserKeys(std::vector<std::string> store_keys) {
  std::erase_if(store_keys, [](const std::string& key) { return key.empty() || key[0] != '/'; });
  for (std::string& key : store_keys) key.erase(0, 1);
  return store_keys;
}

std::string AwaitedText(absl::Span<const std::string> store_keys) {
  const std::string named = absl::StrJoin(store_keys.subspan(0, kKeysNamed), " or ");
  if (store_keys.size() <= kKeysNamed) return absl::StrCat("key ", named);
  return absl::StrCat("key ", named, " or ", store_keys.size() - kKeysNamed, " others");
}

absl::Status QueueIsEmpty(absl::string_view name) {
  return absl::NotFoundError(
      absl::StrCat("queue ", name,
                   " is empty: another client took the item, or a key of that name was "
                   "set; retry, or use another name"));
}

}  // namespace ddprun
