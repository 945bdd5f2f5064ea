// A client of a c10d TCP store (a worker store, `ddprun --store-only`, or torch's own TCPStore), dialect V.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/client/store_client.h"

namespace ddprun {

class C10dConnection;

// A StoreClient over c10d TCP.
//   Errors: in addition, kUnavailable for operations that the store does not support: torch supports queues
//           since 2.8, ListKeys since 2.10, Barrier since 2.11.
//   Source: docs/protocol.md, "c10d TCP".
class C10dClient final : public StoreClient {
 public:
  // Connects, retrying with backoff for at most `timeout`, and checks that a c10d store answers (VALIDATE and
  // PING, as torch does since 2.5).
  //   Errors: kUnavailable: within `timeout` the name did not resolve, the connection was refused, or the
  //           peer closed the connection;
  //           kFailedPrecondition: a server other than a c10d store answered.
  static absl::StatusOr<std::unique_ptr<C10dClient>> Connect(const std::string& host, int port,
                                                             Duration timeout);
  ~C10dClient() override;
  C10dClient(const C10dClient&) = delete;
  C10dClient& operator=(const C10dClient&) = delete;

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

  // The address of this host on the connection to the store, without a port. Other hosts of the job can reach
  // this host at that address.
  std::string local_address() const;

 private:
  explicit C10dClient(std::unique_ptr<C10dConnection> connection);
  const std::unique_ptr<C10dConnection> connection_;
};

}  // namespace ddprun
