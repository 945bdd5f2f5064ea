// Forwards requests from ddpctl to the coordinator.
#pragma once

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/io_context.hpp"
#include "proto/control.grpc.pb.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// Every request is answered exactly once: by the coordinator on the thread of `io`, or with UNAVAILABLE if
// EndAll is called before the coordinator has answered.
//   Threads: gRPC's threads call Drain, Preempt and Stop. Any thread may call EndAll.
class ControlService final : public proto::Control::CallbackService {
 public:
  ControlService(boost::asio::io_context& io, std::weak_ptr<Coordinator> coordinator)
      : io_(io), coordinator_(std::move(coordinator)) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const proto::DrainRequest* request,
                                  proto::DrainReply* reply) override;
  grpc::ServerUnaryReactor* Preempt(grpc::CallbackServerContext* context,
                                    const proto::PreemptRequest* request,
                                    proto::PreemptReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const proto::StopRequest* request,
                                 proto::StopReply* reply) override;

  // Answers all open and later requests with UNAVAILABLE. After this call, handlers on `io` answer no
  // requests. Must be called before the server is shut down.
  void EndAll();

 private:
  // Requests that have not been answered. Shared with posted handlers, which may outlive the service.
  class Open {
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

  // Calls `ask` with the coordinator on the thread of `io` and puts the returned text into `reply`.
  template <typename Ask, typename Reply>
  grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context, Ask ask, Reply* reply);

  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace ddprun
