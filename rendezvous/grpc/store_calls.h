// Carries calls from gRPC's threads to a store and their answers back.
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

// What all holders hold together, at most `max_bytes`.
//   Threads: safe.
class ByteLimit {
 public:
  explicit ByteLimit(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  //   Errors: kResourceExhausted, naming `what`: that is more than what is left; nothing has changed.
  absl::Status Take(uint64_t bytes, absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (bytes <= max_bytes_ - taken_) {
      taken_ += bytes;
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat("calls hold ", taken_, " of ", max_bytes_, " bytes, ",
                                                     what, " needs ", bytes,
                                                     " more: ask again when some are over"));
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

// What one holder has taken of a limit, which outlives it; given back when it goes.
//   Threads: one caller at a time.
class HeldBytes {
 public:
  explicit HeldBytes(ByteLimit* limit) : limit_(limit) {}
  ~HeldBytes() { limit_->GiveBack(bytes_); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  // Errors as those of ByteLimit::Take.
  absl::Status Add(uint64_t bytes, absl::string_view what) {
    absl::Status status = limit_->Take(bytes, what);
    if (status.ok()) bytes_ += bytes;
    return status;
  }
  uint64_t bytes() const { return bytes_; }
  // REQUIRES: so many have been added.
  void Remove(uint64_t bytes) {
    limit_->GiveBack(bytes);
    bytes_ -= bytes;
  }

 private:
  ByteLimit* const limit_;
  uint64_t bytes_ = 0;
};

// Where a call does what it asks for, on the store's thread.
struct StoreTurn {
  StoreHub& hub;
  ConnId id;          // under which it may wait
  uint64_t store_id;  // of the store that is here
  // What the call holds. A reply counts before it is made, and before anything is changed for it, but for the
  // few bytes that every call has.
  HeldBytes& held;
};

struct StoreQuestion {
  // True: done, or an error. False: it waits, and is done when it is woken.
  std::function<absl::StatusOr<bool>(const StoreTurn&)> ask = nullptr;
  // Fills the reply with what is there once it is done. May be empty.
  std::function<absl::Status(const StoreTurn&)> answer = nullptr;
  // The client is told at once when it waits, by the initial metadata.
  bool tells_that_it_waits = false;
};

// Of requests and replies of all calls that are under way, those that wait included.
inline constexpr uint64_t kMaxBytesOfCalls = 512 << 20;

// Every call is answered once: by the store on the thread of `io`, or, when that does not come to it before
// EndAll, with UNAVAILABLE. Who has been asked is told before those whom that woke, who are told in their
// order. What calls hold is limited: a request beyond that is refused with RESOURCE_EXHAUSTED.
//   Threads: Start from gRPC's, Use from that of `io`, EndAll from any.
class StoreCalls {
 public:
  // Told of each request that has come whole, and again, with the bytes that its client sends for the answer
  // at most, when it is over. May be empty.
  using OnMessage = std::function<void(absl::string_view peer, uint64_t bytes)>;

  explicit StoreCalls(boost::asio::io_context& io, uint64_t max_bytes = kMaxBytesOfCalls,
                      OnMessage on_message = {});
  ~StoreCalls();
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // From now on calls go to `hub`, which is the caller's; null: to none. Those that wait in the one before
  // stay there, until it is destroyed: that ends them with ABORTED.
  void Use(StoreHub* hub);
  // `checked`: what is wrong with the request, seen without the store. `question` may point to the request
  // and the reply, which live until the call is answered.
  template <typename Request>
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  const Request& request, StoreQuestion question) {
    uint64_t store_id = 0;  // whichever is here
    if constexpr (requires { request.store(); }) store_id = request.store();
    return Start(context, checked, store_id, request.SpaceUsedLong(), std::move(question));
  }
  // Ends all that wait, and all to come, with UNAVAILABLE and `why`. Before the server is shut down: no
  // handler of `io` will answer any more.
  void EndAll(const std::string& why);

 private:
  class Call;
  struct Shared;

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  uint64_t store_id, uint64_t request_bytes, StoreQuestion question);

  const std::shared_ptr<Shared> shared_;  // with what is posted, which may outlive the server
};

}  // namespace ddprun
