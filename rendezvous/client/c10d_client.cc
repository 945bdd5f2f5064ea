#include "rendezvous/client/c10d_client.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/c10d_wire.h"
#include "rendezvous/client/c10d_connection.h"

namespace ddprun {
namespace {

// Each of these functions returns a `receive` argument for C10dConnection::Ask.
auto I64(C10dConnection& c) {
  return [&c](TimePoint deadline) { return c.ReceiveI64(deadline); };
}
auto Bytes(C10dConnection& c) {
  return [&c](TimePoint deadline) { return c.ReceiveBytes(deadline); };
}

std::vector<absl::string_view> Views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

absl::Status AwaitKeys(C10dConnection& c, const std::vector<std::string>& store_keys, Duration timeout) {
  return c.Await(c10d::Wait{Views(store_keys)}, AwaitedText(store_keys), timeout);
}

}  // namespace

absl::StatusOr<std::unique_ptr<C10dClient>> C10dClient::Connect(const std::string& host, int port,
                                                                Duration timeout) {
  ASSIGN_OR_RETURN(std::unique_ptr<C10dConnection> connection, C10dConnection::Open(host, port, timeout));
  return absl::WrapUnique(new C10dClient(std::move(connection)));
}

C10dClient::C10dClient(std::unique_ptr<C10dConnection> connection) : connection_(std::move(connection)) {}
C10dClient::~C10dClient() = default;

absl::Status C10dClient::Set(absl::string_view key, absl::string_view value) {
  return connection_->Tell(c10d::Set{StoreKey(key), value});
}

absl::Status C10dClient::MultiSet(absl::Span<const Pair> pairs) {
  std::vector<std::string> keys;
  keys.reserve(pairs.size());  // a reallocation would invalidate the views in `request`
  std::vector<c10d::KeyValue> request;
  request.reserve(pairs.size());
  for (const Pair& pair : pairs) request.push_back({keys.emplace_back(StoreKey(pair.key)), pair.value});
  return connection_->Tell(c10d::MultiSet{request});
}

absl::Status C10dClient::Append(absl::string_view key, absl::string_view value) {
  return connection_->Tell(c10d::Append{StoreKey(key), value});
}

absl::StatusOr<std::string> C10dClient::CompareSet(absl::string_view key, absl::string_view expected,
                                                   absl::string_view desired) {
  return connection_->Ask(c10d::CompareSet{StoreKey(key), expected, desired}, Bytes(*connection_));
}

absl::StatusOr<int64_t> C10dClient::Add(absl::string_view key, int64_t delta) {
  return connection_->Ask(c10d::Add{StoreKey(key), delta}, I64(*connection_));
}

absl::StatusOr<std::string> C10dClient::Get(absl::string_view key, Duration timeout) {
  const std::vector<std::string> keys = {StoreKey(key)};
  RETURN_IF_ERROR(AwaitKeys(*connection_, keys, timeout));
  return connection_->Ask(c10d::Get{keys[0]}, Bytes(*connection_));
}

absl::StatusOr<std::vector<std::string>> C10dClient::MultiGet(const std::vector<std::string>& keys,
                                                              Duration timeout) {
  const std::vector<std::string> store_keys = StoreKeys(keys);
  RETURN_IF_ERROR(AwaitKeys(*connection_, store_keys, timeout));
  return connection_->Ask(c10d::MultiGet{Views(store_keys)}, [&](TimePoint deadline) {
    return connection_->ReceiveList(store_keys.size(), deadline);
  });
}

absl::StatusOr<bool> C10dClient::Check(const std::vector<std::string>& keys) {
  const std::vector<std::string> store_keys = StoreKeys(keys);
  ASSIGN_OR_RETURN(const uint8_t reply,
                   connection_->Ask(c10d::Check{Views(store_keys)},
                                    [&](TimePoint deadline) { return connection_->ReceiveU8(deadline); }));
  return reply == static_cast<uint8_t>(c10d::CheckReply::kReady);
}

absl::Status C10dClient::Wait(const std::vector<std::string>& keys, Duration timeout) {
  return AwaitKeys(*connection_, StoreKeys(keys), timeout);
}

absl::StatusOr<int64_t> C10dClient::NumKeys() { return connection_->Ask(c10d::NumKeys{}, I64(*connection_)); }

absl::StatusOr<std::vector<std::string>> C10dClient::ListKeys() {
  ASSIGN_OR_RETURN(
      std::vector<std::string> keys,
      connection_->Ask(c10d::ListKeys{}, [&](TimePoint deadline) -> absl::StatusOr<std::vector<std::string>> {
        ASSIGN_OR_RETURN(const int64_t count, connection_->ReceiveI64(deadline));
        return connection_->ReceiveList(static_cast<uint64_t>(count), deadline);
      }));
  return UserKeys(std::move(keys));
}

absl::StatusOr<bool> C10dClient::DeleteKey(absl::string_view key) {
  ASSIGN_OR_RETURN(const int64_t deleted,
                   connection_->Ask(c10d::DeleteKey{StoreKey(key)}, I64(*connection_)));
  return deleted > 0;
}

absl::Status C10dClient::QueuePush(absl::string_view name, absl::string_view item) {
  return connection_->Tell(c10d::QueuePush{StoreKey(name), item});
}

absl::StatusOr<std::string> C10dClient::QueuePop(absl::string_view name, Duration timeout) {
  RETURN_IF_ERROR(AwaitKeys(*connection_, {StoreKey(name)}, timeout));
  ASSIGN_OR_RETURN(std::optional<std::string> item, TryQueuePop(name));
  if (!item) return QueueIsEmpty(name);
  return *std::move(item);
}

absl::StatusOr<std::optional<std::string>> C10dClient::TryQueuePop(absl::string_view name) {
  return connection_->Ask(c10d::QueuePop{StoreKey(name)},
                          [&](TimePoint deadline) -> absl::StatusOr<std::optional<std::string>> {
                            ASSIGN_OR_RETURN(const int64_t length, connection_->ReceiveI64(deadline));
                            if (length == 0) return std::nullopt;
                            return connection_->ReceiveBytes(deadline);
                          });
}

absl::StatusOr<int64_t> C10dClient::QueueLen(absl::string_view name) {
  return connection_->Ask(c10d::QueueLen{StoreKey(name)}, I64(*connection_));
}

absl::Status C10dClient::Barrier(absl::string_view key, int64_t world_size, Duration timeout) {
  const std::string store_key = StoreKey(key);
  return connection_->Await(c10d::Barrier{store_key, world_size},
                            absl::StrCat("barrier ", store_key, " of ", world_size), timeout);
}

std::string C10dClient::local_address() const { return connection_->local_address(); }

}  // namespace ddprun
