// The SDK's client for the worker store, which is a c10d store. All keys have the same prefix.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/time.h"
#include "rendezvous/client/c10d_client.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

// Prepends `prefix` to every key. Connects on first use, and reconnects after the connection was lost.
//   Errors:  those of Store, and kFailedPrecondition if there is no store (port 0).
//   Threads: any number of callers. Calls are serialized: a blocking Get delays the others.
class RoundStore : public Store {
 public:
  RoundStore(std::string host, int port, std::string prefix, Duration connect_timeout)
      : host_(std::move(host)), port_(port), prefix_(std::move(prefix)), connect_timeout_(connect_timeout) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status Connect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the client after kUnavailable, so that the next call reconnects.
  void NoteEnd(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string host_;
  const int port_;
  const std::string prefix_;
  const Duration connect_timeout_;
  absl::Mutex mu_;
  std::unique_ptr<C10dClient> client_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ddprun
