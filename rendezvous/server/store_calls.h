// Carries calls from gRPC's threads to a store and their answers back.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/core/store_hub.h"

namespace ddprun {

// Where a call does what it asks for, on the store's thread.
struct StoreTurn {
  StoreHub& hub;
  ConnId id;          // under which it may wait
  uint64_t store_id;  // of the store that is here
};

struct StoreQuestion {
  uint64_t store_id = 0;  // of the store that the client means; 0: whichever is here
  // True: done, or an error. False: it waits, and is done when it is woken.
  std::function<absl::StatusOr<bool>(const StoreTurn&)> ask = nullptr;
  // Fills the reply with what is there once it is done. May be empty.
  std::function<absl::Status(const KvStore&)> answer = nullptr;
};

// Every call is answered once: by the store on the thread of `io`, or, when that does not come to it before
// EndAll, with UNAVAILABLE. Who has been asked is told before those whom that woke, who are told in their
// order.
//   Threads: Start from gRPC's, Use from that of `io`, EndAll from any.
class StoreCalls {
 public:
  explicit StoreCalls(boost::asio::io_context& io);
  ~StoreCalls();
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // From now on calls go to `hub`, which is the caller's; null: to none. Those that wait in the one before
  // stay there, until it is destroyed: that ends them with ABORTED.
  void Use(StoreHub* hub);
  // `checked`: what is wrong with the request, seen without the store. `question` may point to the request
  // and the reply, which live until the call is answered.
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                  StoreQuestion question);
  // Ends all that wait, and all to come, with UNAVAILABLE and `why`. Before the server is shut down: no
  // handler of `io` will answer any more.
  void EndAll(const std::string& why);

 private:
  class Call;
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // with what is posted, which may outlive the server
};

}  // namespace ddprun
