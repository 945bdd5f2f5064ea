// A client of a coordinator's store over gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/client/store_client.h"

namespace ddprun {

// When a call returns OK, the store has executed it. Errors of the store keep their codes: kInvalidArgument
// (the value is not a number) or kResourceExhausted (the store is full, calls in flight use too much memory,
// or the reply would exceed 64 MiB).
//   Source: proto/store.proto; docs/protocol.md, "Store over gRPC".
class GrpcStore final : public StoreClient {
 public:
  // Connects and gets the id of the current store, with retries for at most `timeout`. Later calls use that
  // store or fail. `address` is numeric.
  //   Errors: kUnavailable: no server answered, or the server currently has no store;
  //           kFailedPrecondition: the gRPC server that answered has no Store service.
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

  // Returns the value without waiting, or nullopt if the key is absent. c10d TCP has no equivalent operation.
  absl::StatusOr<std::optional<std::string>> TryGet(absl::string_view key);

 private:
  struct Impl;
  explicit GrpcStore(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
