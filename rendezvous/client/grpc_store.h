// A client of the store of a coordinator's port, over gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/client/store_client.h"

namespace ddprun {

// Each call has been carried out when it returns, and each error has its code: what the store refuses is
// kInvalidArgument (a number expected) or kResourceExhausted (the store is full, a reply of more than 64
// MiB).
//   Source: proto/store.proto; docs/protocol.md, "Store over gRPC".
class GrpcStore final : public StoreClient {
 public:
  // Connects, retrying until `timeout`, and asks which store is there: later calls go to that one or fail.
  // `address` is numeric.
  //   Errors: kUnavailable: nobody answered, or there is no store now;
  //           kFailedPrecondition: something else than a coordinator with a store answers there.
  static absl::StatusOr<std::unique_ptr<GrpcStore>> Connect(const std::string& address, int port,
                                                            Duration timeout);
  ~GrpcStore() override;
  GrpcStore(const GrpcStore&) = delete;
  GrpcStore& operator=(const GrpcStore&) = delete;

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::Status MultiSet(absl::Span<const Pair> pairs) override;
  absl::Status Append(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                         absl::string_view desired) override;
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta) override;
  absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) override;
  absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                    Duration timeout) override;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override;
  absl::Status Wait(const std::vector<std::string>& keys, Duration timeout) override;
  absl::StatusOr<int64_t> NumKeys() override;
  absl::StatusOr<std::vector<std::string>> ListKeys() override;
  absl::StatusOr<bool> DeleteKey(absl::string_view key) override;
  absl::Status QueuePush(absl::string_view name, absl::string_view item) override;
  absl::StatusOr<std::string> QueuePop(absl::string_view name, Duration timeout) override;
  absl::StatusOr<std::optional<std::string>> TryQueuePop(absl::string_view name) override;
  absl::StatusOr<int64_t> QueueLen(absl::string_view name) override;
  absl::Status Barrier(absl::string_view key, int64_t world_size, Duration timeout) override;

  // Does not wait, and tells a key that is not there from an empty value, which c10d TCP cannot.
  absl::StatusOr<std::optional<std::string>> TryGet(absl::string_view key);

 private:
  struct Impl;
  explicit GrpcStore(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
