// The requests to a service of gRPC that have not been answered.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ddprun {

// Shared with posted handlers, which may outlive the service.
//   Threads: any.
class OpenRequests {
 public:
  // Returns false if End has been called. The caller must then answer the request.
  bool Add(grpc::ServerUnaryReactor* reactor);
  // Returns whether the request is open. It and its memory may be gone at once after.
  bool Has(grpc::ServerUnaryReactor* reactor);
  // Closes the request. Returns true if the request was open; the caller must then answer it.
  bool Take(grpc::ServerUnaryReactor* reactor);
  // Removes and returns the open requests. The caller must answer them.
  std::set<grpc::ServerUnaryReactor*> End();

 private:
  absl::Mutex mutex_;
  std::set<grpc::ServerUnaryReactor*> reactors_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun
