// Carries requests of ddpctl to the coordinator.
#pragma once

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/io_context.hpp"
#include "proto/control.grpc.pb.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// Every request is answered: by the coordinator on the thread of `io`, or, when that does not come to it
// before EndAll, with UNAVAILABLE.
//   Threads: gRPC's call the service, any thread EndAll.
class ControlService final : public proto::Control::CallbackService {
 public:
  ControlService(boost::asio::io_context& io, std::weak_ptr<Coordinator> coordinator)
      : io_(io), coordinator_(std::move(coordinator)) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const proto::DrainRequest* request,
                                  proto::DrainReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const proto::StopRequest* request,
                                 proto::StopReply* reply) override;

  // Before the server is shut down: no handler of `io` will answer any more.
  void EndAll();

 private:
  // The requests that nobody has answered. Shared with what is posted, which may outlive the service.
  class Open {
   public:
    bool Add(grpc::ServerUnaryReactor* reactor);
    // True for the one that shall answer it.
    bool Take(grpc::ServerUnaryReactor* reactor);
    std::set<grpc::ServerUnaryReactor*> End();

   private:
    absl::Mutex mutex_;
    std::set<grpc::ServerUnaryReactor*> reactors_ ABSL_GUARDED_BY(mutex_);
    bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  };

  // `ask` asks the coordinator; `reply` takes the text that it answers with.
  template <typename Ask, typename Reply>
  grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context, Ask ask, Reply* reply);

  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace ddprun
