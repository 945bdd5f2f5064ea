// A client of the worker store: a c10d TCP store, hosted by an agent of ddprun or torchrun.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

// Uses the versioned dialect (PyTorch 2.2 and later), and prepends `prefix` to every key. Connects on first
// use, and connects again after an error of the connection.
//   Errors:  those of Store. kFailedPrecondition: there is no store (port 0), or the server is no c10d store.
//            kCancelled: Cancel was called. kResourceExhausted: a key or a value is longer than a store accepts.
//   Threads: any number of callers. Calls are serialized: a blocking Get delays the others.
//   Source:  docs/protocol.md, "c10d TCP".
class C10dStore : public Store {
 public:
  // `connect_timeout` limits each attempt to connect, with retries, and each request apart from the wait of
  // Get.
  C10dStore(std::string host, int port, std::string prefix, Duration connect_timeout);

  Status Set(std::string_view key, std::string_view value) override;
  StatusOr<std::string> Get(std::string_view key, Duration timeout) override;
  void Cancel() override;

 private:
  // All private functions require that mu_ is held.
  Status Connect();
  Status TryConnect(TimePoint deadline);
  Status Greet(TimePoint deadline);
  // Waits until the store has `key`.
  Status Await(const std::string& key, TimePoint deadline);
  Status Send(std::string_view bytes, TimePoint deadline);
  Status Receive(char* data, size_t size, TimePoint deadline);
  StatusOr<std::string> ReceiveValue(TimePoint deadline);
  std::string KeyOf(std::string_view key) const;
  // Closes the connection. Returns `why` with the store's name, as kUnavailable unless the server is no store or Cancel was
  // called.
  Status Broken(const Status& why);

  const std::string host_;
  const int port_;
  const std::string prefix_;
  const Duration timeout_;
  const UniqueFd cancel_fd_;  // an eventfd that is readable once Cancel was called
  std::mutex mu_;
  UniqueFd fd_;  // non-blocking; empty: not connected. Guarded by mu_
};

}  // namespace ddprun
