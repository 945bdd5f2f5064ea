// Forwards requests of ddpctl to the coordinator.
#pragma once

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/io_context.hpp"
#include "proto/control.grpc.pb.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// Every request is answered: by the coordinator on the thread of `io`, or with UNAVAILABLE if the coordinator
// has not answered before EndAll.
//   Threads: gRPC's threads call the service; EndAll from any thread.
class ControlService final : public proto::Control::CallbackService {
 public:
  ControlService(boost::asio::io_context& io, std::weak_ptr<Coordinator> coordinator)
      : io_(io), coordinator_(std::move(coordinator)) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const proto::DrainRequest* request,
                                  proto::DrainReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const proto::StopRequest* request,
                                 proto::StopReply* reply) override;

  // Answers all open and later requests with UNAVAILABLE. Handlers on `io` answer no request after that. Call
  // before shutting down the server.
  void EndAll();

 private:
  // Requests that have not been answered. Shared with posted handlers, which may outlive the service.
  class Open {
   public:
    bool Add(grpc::ServerUnaryReactor* reactor);
    // True: the caller must answer the request. Only the first call for a request returns true.
    bool Take(grpc::ServerUnaryReactor* reactor);
    std::set<grpc::ServerUnaryReactor*> End();

   private:
    absl::Mutex mutex_;
    std::set<grpc::ServerUnaryReactor*> reactors_ ABSL_GUARDED_BY(mutex_);
    bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  };

  // Calls `ask` with the coordinator and puts the returned text into `reply`.
  template <typename Ask, typename Reply>
  grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context, Ask ask, Reply* reply);

  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace ddprun
