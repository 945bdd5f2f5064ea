#include "rendezvous/grpc/control_service.h"

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/post.hpp"
#include "proto/grpc_status.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

constexpr size_t kMaxReasonBytes = 1024;
constexpr int64_t kMaxNoticeMillis = int64_t{1000} * 3600 * 24;  // a day

grpc::Status Ending() { return {grpc::StatusCode::UNAVAILABLE, "the coordinator is ending"}; }

std::string Reason(const std::string& reason) {
  return reason.empty() ? "no reason was given" : Utf8Head(reason, kMaxReasonBytes);
}

}  // namespace

template <typename Ask, typename Reply>
grpc::ServerUnaryReactor* ControlService::Handle(grpc::CallbackServerContext* context, Ask ask,
                                                 Reply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!open_->Add(reactor)) {
    reactor->Finish(Ending());
    return reactor;
  }
  boost::asio::post(io_, [open = open_, coordinator = coordinator_, reactor, ask = std::move(ask), reply] {
    if (!open->Has(reactor)) return;
    const auto locked = coordinator.lock();
    if (locked == nullptr) {
      if (open->Take(reactor)) reactor->Finish(Ending());
      return;
    }
    ask(*locked, [open, reactor, reply](const absl::StatusOr<std::string>& text) {
      if (!open->Take(reactor)) return;
      if (text.ok()) reply->set_text(*text);
      reactor->Finish(ToGrpc(text.status()));
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Drain(grpc::CallbackServerContext* context,
                                                const proto::DrainRequest* request,
                                                proto::DrainReply* reply) {
  return Handle(
      context,
      [request = *request](Coordinator& c, Coordinator::Reply done) {
        c.Drain(request.run_id(), request.node(), Reason(request.reason()), std::move(done));
      },
      reply);
}

grpc::ServerUnaryReactor* ControlService::Preempt(grpc::CallbackServerContext* context,
                                                  const proto::PreemptRequest* request,
                                                  proto::PreemptReply* reply) {
  return Handle(
      context,
      [request = *request](Coordinator& c, Coordinator::Reply done) {
        const auto check = [](absl::string_view field, int64_t value, int64_t least) {
          if (value >= least && value <= kMaxNoticeMillis) return absl::OkStatus();
          return absl::InvalidArgumentError(
              absl::StrCat(field, " is ", value, ", expected ", least, " to ", kMaxNoticeMillis));
        };
        absl::Status fit = check("left_ms", request.left_ms(), 1);
        fit.Update(check("back_in_ms", request.back_in_ms(), 0));
        if (!fit.ok()) return done(fit);
        PreemptNode notice{.run_id = request.run_id(),
                           .node = request.node(),
                           .reason = Reason(request.reason()),
                           .left = milliseconds(request.left_ms())};
        if (request.has_back_in_ms()) notice.back_in = milliseconds(request.back_in_ms());
        c.Preempt(notice, std::move(done));
      },
      reply);
}

grpc::ServerUnaryReactor* ControlService::Stop(grpc::CallbackServerContext* context,
                                               const proto::StopRequest* request, proto::StopReply* reply) {
  return Handle(
      context,
      [request = *request](Coordinator& c, Coordinator::Reply done) {
        c.Stop(request.run_id(), Reason(request.reason()), std::move(done));
      },
      reply);
}

grpc::ServerUnaryReactor* ControlService::Stacks(grpc::CallbackServerContext* context,
                                                 const proto::StacksRequest* request,
                                                 proto::StacksReply* reply) {
  return Handle(
      context,
      [request = *request](Coordinator& c, Coordinator::Reply done) {
        std::optional<Rank> rank;
        if (request.has_rank()) rank = Rank(request.rank());
        c.Stacks(request.run_id(), rank, request.native(), std::move(done));
      },
      reply);
}

void ControlService::EndAll() {
  for (grpc::ServerUnaryReactor* reactor : open_->End()) reactor->Finish(Ending());
}

}  // namespace ddprun
