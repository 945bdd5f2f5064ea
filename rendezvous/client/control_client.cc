#include "rendezvous/client/control_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "proto/control.grpc.pb.h"
#include "proto/grpc_status.h"
#include "proto/utf8.h"
#include "rendezvous/client/grpc_channel.h"

namespace ddprun {
namespace {

constexpr size_t kMaxTextBytes = 1024;

template <typename Request, typename Reply>
absl::StatusOr<std::string> Call(const ControlTarget& target,
                                 grpc::Status (proto::Control::Stub::*method)(grpc::ClientContext*,
                                                                              const Request&, Reply*),
                                 const Request& request) {
  const auto stub = proto::Control::NewStub(MakeCoordinatorChannel(target.address, target.port));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::ceil<std::chrono::microseconds>(target.timeout));
  Reply reply;
  if (const grpc::Status status = ((*stub).*method)(&context, request, &reply); !status.ok())
    return FromGrpc(status);
  return reply.text();
}

}  // namespace

absl::StatusOr<std::string> DrainNode(const ControlTarget& target, const std::string& run_id,
                                      const std::string& node, const std::string& reason) {
  proto::DrainRequest request;
  request.set_run_id(Utf8Head(run_id, kMaxTextBytes));
  request.set_node(Utf8Head(node, kMaxTextBytes));
  request.set_reason(Utf8Head(reason, kMaxTextBytes));
  return Call<proto::DrainRequest, proto::DrainReply>(target, &proto::Control::Stub::Drain, request);
}

absl::StatusOr<std::string> PreemptNode(const ControlTarget& target, const std::string& run_id,
                                        const std::string& node, const std::string& reason, Duration left,
                                        std::optional<Duration> back_in) {
  proto::PreemptRequest request;
  request.set_run_id(Utf8Head(run_id, kMaxTextBytes));
  request.set_node(Utf8Head(node, kMaxTextBytes));
  request.set_reason(Utf8Head(reason, kMaxTextBytes));
  request.set_left_ms(ToMillis(left));
  if (back_in) request.set_back_in_ms(ToMillis(*back_in));
  return Call<proto::PreemptRequest, proto::PreemptReply>(target, &proto::Control::Stub::Preempt, request);
}

absl::StatusOr<std::string> StopJob(const ControlTarget& target, const std::string& run_id,
                                    const std::string& reason) {
  proto::StopRequest request;
  request.set_run_id(Utf8Head(run_id, kMaxTextBytes));
  request.set_reason(Utf8Head(reason, kMaxTextBytes));
  return Call<proto::StopRequest, proto::StopReply>(target, &proto::Control::Stub::Stop, request);
}

absl::StatusOr<std::string> StacksOfJob(const ControlTarget& target, const std::string& run_id,
                                        std::optional<int> rank, bool native) {
  proto::StacksRequest request;
  request.set_run_id(Utf8Head(run_id, kMaxTextBytes));
  if (rank) request.set_rank(*rank);
  request.set_native(native);
  return Call<proto::StacksRequest, proto::StacksReply>(target, &proto::Control::Stub::Stacks, request);
}

}  // namespace ddprun
