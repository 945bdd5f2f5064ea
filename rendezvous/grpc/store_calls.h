// Passes calls from gRPC's threads to a store, and the replies back.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/core/store_hub.h"

namespace ddprun {

// A limit of `max_bytes`, shared by all HeldBytes that refer to it.
//   Threads: thread-safe.
class ByteLimit {
 public:
  explicit ByteLimit(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  //   Errors: kResourceExhausted, naming `what`: less than `bytes` is left; nothing changes.
  absl::Status Take(uint64_t bytes, absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (bytes <= max_bytes_ - taken_) {
      taken_ += bytes;
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat("calls hold ", taken_, " of ", max_bytes_, " bytes, ",
                                                     what, " needs ", bytes,
                                                     " more: retry when other calls have ended"));
  }
  void GiveBack(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    taken_ -= bytes;
  }

 private:
  const uint64_t max_bytes_;
  absl::Mutex mutex_;
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One holder's share of a ByteLimit, which must outlive this object. The destructor gives the share back.
//   Threads: one caller at a time.
class HeldBytes {
 public:
  explicit HeldBytes(ByteLimit* limit) : limit_(limit) {}
  ~HeldBytes() { limit_->GiveBack(bytes_); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  //   Errors: those of ByteLimit::Take.
  absl::Status Add(uint64_t bytes, absl::string_view what) {
    absl::Status status = limit_->Take(bytes, what);
    if (status.ok()) bytes_ += bytes;
    return status;
  }
  uint64_t bytes() const { return bytes_; }
  // REQUIRES: bytes <= bytes().
  void Remove(uint64_t bytes) {
    limit_->GiveBack(bytes);
    bytes_ -= bytes;
  }

 private:
  ByteLimit* const limit_;
  uint64_t bytes_ = 0;
};

// The context in which a call operates on the store, on the store's thread.
struct StoreTurn {
  StoreHub& hub;
  ConnId id;          // id under which the call waits
  uint64_t store_id;  // id of the store
  // Memory of the call. Add the size of the reply before building it and before changing the store. The few
  // bytes that every reply needs are already included.
  HeldBytes& held;
};

struct StoreQuestion {
  // Executes the call. True: done. False: the call waits, and is done when it is woken.
  std::function<absl::StatusOr<bool>(const StoreTurn&)> ask = nullptr;
  // Fills in the reply when the call is done. May be empty.
  std::function<absl::Status(const StoreTurn&)> answer = nullptr;
  // Sends the initial metadata when the call begins to wait.
  bool tells_that_it_waits = false;
};

// Limit for the requests and replies of all calls in flight, including calls that wait.
inline constexpr uint64_t kMaxBytesOfCalls = 512 << 20;

// Every call is answered once: by the store on the thread of `io`, or with UNAVAILABLE if the store
// has not answered before EndAll. A call is answered before the calls that it has woken, which are answered
// in the order of their waits. The memory of calls is limited: a request beyond the limit is refused with
// RESOURCE_EXHAUSTED.
//   Threads: Start on gRPC's threads, Use on the thread of `io`, EndAll on any thread.
class StoreCalls {
 public:
  // Called with the size of each complete request, and again when its call has ended, with an upper bound of
  // the bytes that the client sends to acknowledge the reply. May be empty.
  using OnMessage = std::function<void(absl::string_view peer, uint64_t bytes)>;

  explicit StoreCalls(boost::asio::io_context& io, uint64_t max_bytes = kMaxBytesOfCalls,
                      OnMessage on_message = {});
  ~StoreCalls();
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // Sets the store for later calls; `hub` is borrowed. Null: no store. Calls that wait in the previous store
  // stay there until that store is destroyed, which ends the calls with ABORTED.
  void Use(StoreHub* hub);
  // Starts a call. `checked` is the result of its validation; an error is sent as the reply. `question` may
  // refer to the request and the reply, which live until the call is answered.
  template <typename Request>
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  const Request& request, StoreQuestion question) {
    uint64_t store_id = 0;  // any store
    if constexpr (requires { request.store(); }) store_id = request.store();
    return Start(context, checked, store_id, request.SpaceUsedLong(), std::move(question));
  }
  // Ends all open and later calls with UNAVAILABLE and `why`. Handlers on `io` answer no call after that.
  // Call before shutting down the server.
  void EndAll(const std::string& why);

 private:
  class Call;
  struct Shared;

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  uint64_t store_id, uint64_t request_bytes, StoreQuestion question);

  const std::shared_ptr<Shared> shared_;  // shared with posted handlers, which may outlive the server
};

}  // namespace ddprun
