// Forwards requests from ddpctl to the coordinator.
#pragma once

#include <memory>

#include "boost/asio/io_context.hpp"
#include "proto/control.grpc.pb.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/grpc/open_requests.h"

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
  grpc::ServerUnaryReactor* Stacks(grpc::CallbackServerContext* context, const proto::StacksRequest* request,
                                   proto::StacksReply* reply) override;

  // Answers all open and later requests with UNAVAILABLE. After this call, handlers on `io` answer no
  // requests. Must be called before the server is shut down.
  void EndAll();

 private:
  // Calls `ask` with the coordinator on the thread of `io` and puts the returned text into `reply`.
  template <typename Ask, typename Reply>
  grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context, Ask ask, Reply* reply);

  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  const std::shared_ptr<OpenRequests> open_ = std::make_shared<OpenRequests>();
};

}  // namespace ddprun
