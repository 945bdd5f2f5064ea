// Passes calls from gRPC's threads to a store and returns the replies.
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

  // Reserves `bytes`.
  //   Errors: kResourceExhausted: fewer than `bytes` are left; nothing changes. The message names `what`.
  absl::Status Take(uint64_t bytes, absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (bytes <= max_bytes_ - taken_) {
      taken_ += bytes;
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat("calls hold ", taken_, " of ", max_bytes_,
                                                     " bytes, and ", what, " needs ", bytes,
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

// The share of one holder in a ByteLimit. The ByteLimit must outlive this object. The destructor releases the
// share.
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

// The context in which a call operates on a store, on the thread of the store.
struct StoreTurn {
  StoreHub& hub;
  ConnId id;          // the id under which the call waits
  uint64_t store_id;  // id of the store
  // Memory held by the call. A call must add the size of its reply before it builds the reply and before it
  // changes the store. The few bytes that every reply needs are already included.
  HeldBytes& held;
};

struct StoreQuestion {
  // Executes the call. Returns true if the call is done, and false if it waits. A call that waits is done
  // when it is woken.
  std::function<absl::StatusOr<bool>(const StoreTurn&)> ask = nullptr;
  // Fills in the reply when the call is done. May be empty.
  std::function<absl::Status(const StoreTurn&)> answer = nullptr;
  // If true, the initial metadata is sent when the call begins to wait.
  bool tells_that_it_waits = false;
};

// Limit for the total size of the requests and replies of all calls in flight, including calls that wait.
inline constexpr uint64_t kMaxBytesOfCalls = 512 << 20;

// Every call is answered exactly once: by the store on the thread of `io`, or with UNAVAILABLE if EndAll is
// called before the store answers. A call is answered before the calls that it wakes. Woken calls are
// answered in the order in which they began to wait. The memory of calls is limited: a request beyond the
// limit is rejected with RESOURCE_EXHAUSTED.
//   Threads: gRPC's threads call Start. Use must be called on the thread of `io`. Any thread may call EndAll.
class StoreCalls {
 public:
  // Called with the size of each complete request. Called again when the call has ended, with an upper bound
  // on the number of bytes that the client sends to acknowledge the reply. May be empty.
  using OnMessage = std::function<void(absl::string_view peer, uint64_t bytes)>;

  explicit StoreCalls(boost::asio::io_context& io, uint64_t max_bytes = kMaxBytesOfCalls,
                      OnMessage on_message = {});
  ~StoreCalls();
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // Sets the store for later calls. `hub` is borrowed; null means that there is no store. Calls that wait in
  // the previous store keep waiting until that store is destroyed, and then end with ABORTED.
  void Use(StoreHub* hub);
  // Starts a call. `checked` is the result of validating the request. If it is an error, it is the reply.
  // `question` may refer to the request and the reply, which live until the call is answered.
  template <typename Request>
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  const Request& request, StoreQuestion question) {
    uint64_t store_id = 0;  // 0 means any store
    if constexpr (requires { request.store(); }) store_id = request.store();
    return Start(context, checked, store_id, request.SpaceUsedLong(), std::move(question));
  }
  // Ends all open and later calls with UNAVAILABLE and `why`. After this call, handlers on `io` answer no
  // calls. Must be called before the server is shut down.
  void EndAll(const std::string& why);

 private:
  class Call;
  struct Shared;

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  uint64_t store_id, uint64_t request_bytes, StoreQuestion question);

  const std::shared_ptr<Shared> shared_;  // shared with posted handlers, which may outlive the server
};

}  // namespace ddprun
