// A client of c10d TCP stores: worker stores, `ddprun --store-only` and torch's own TCPStore. Uses the
// versioned dialect; see docs/protocol.md, "c10d TCP".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/client/store_client.h"

namespace ddprun {

class C10dConnection;

// A StoreClient over c10d TCP.
//   Errors: those of StoreClient, and kUnavailable for operations that the store does not support. torch's
//           TCPStore supports queues as of torch 2.8, ListKeys as of 2.10 and Barrier as of 2.11.
//   Source: docs/protocol.md, "c10d TCP".
class C10dClient final : public StoreClient {
 public:
  // Connects, then sends VALIDATE and PING to check that the peer is a c10d store, as torch 2.5 and later do.
  // Retries with backoff for at most `timeout`. `timeout` also limits each later request that does not wait.
  //   Errors: kUnavailable: `timeout` has passed. In the last attempt, the name did not resolve, the
  //           connection failed, or the peer did not answer;
  //           kFailedPrecondition: a server that is not a c10d store answered. Not retried.
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

  // Returns the numeric address of this host on its connection to the store, without the port. Returns an
  // empty string if the address cannot be determined.
  std::string local_address() const;

 private:
  explicit C10dClient(std::unique_ptr<C10dConnection> connection);
  const std::unique_ptr<C10dConnection> connection_;
};

}  // namespace ddprun
