#include "rendezvous/etcd/etcd_access.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "boost/asio/steady_timer.hpp"
#include "proto/etcd.grpc.pb.h"
#include "proto/grpc_status.h"

namespace ddprun {
namespace {

// Between two rounds over all endpoints. It doubles after each round.
constexpr Duration kFirstPause = milliseconds(50);
constexpr Duration kLongestPause = milliseconds(400);
// A call that may be repeated waits for one member at least so long, while the limit of the call permits it.
constexpr Duration kShortestAttempt = milliseconds(100);

TimePoint Now() { return std::chrono::steady_clock::now(); }

}  // namespace

std::string EtcdKeys(const EtcdOptions& options) {
  absl::string_view prefix = options.prefix;
  while (absl::ConsumeSuffix(&prefix, "/")) {
  }
  return absl::StrCat(prefix, "/", options.run_id);
}

// One call of a user: its attempts and what became of them.
struct EtcdAccess::Operation {
  Repeat repeat;
  TimePoint deadline;
  EtcdRpc rpc;
  std::function<void(absl::Status)> done;
  boost::asio::steady_timer timer;
  size_t endpoint;                          // of this attempt
  std::map<size_t, EtcdError> errors = {};  // newest of each endpoint
  size_t tried = 0;                         // endpoints in this round over all of them
  Duration pause = kFirstPause;             // the next one
  bool authenticated_again = false;
};

EtcdAccess::EtcdAccess(boost::asio::io_context& io, const EtcdOptions& options)
    : io_(io),
      options_(options),
      context_{.user = options.user,
               .keys = EtcdKeys(options),
               .tls = options.tls.has_value(),
               .client_certificate = options.tls && !options.tls->certificate.empty()},
      channels_(options.endpoints.size()),
      calls_(io) {
  DDPRUN_CHECK(!options_.endpoints.empty(), "no endpoint of etcd");
}

const std::shared_ptr<grpc::Channel>& EtcdAccess::Channel(size_t endpoint) {
  std::shared_ptr<grpc::Channel>& channel = channels_[endpoint];
  if (channel != nullptr) return channel;
  grpc::ChannelArguments arguments;
  // The environment variable http_proxy is meant for other traffic.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (const auto& tls = options_.tls)
    credentials = grpc::SslCredentials(
        {.pem_root_certs = tls->ca, .pem_private_key = tls->key, .pem_cert_chain = tls->certificate});
  channel = grpc::CreateCustomChannel(absl::StrCat("dns:///", options_.endpoints[endpoint]), credentials,
                                      arguments);
  return channel;
}

void EtcdAccess::Call(Repeat repeat, TimePoint deadline, EtcdRpc rpc,
                      std::function<void(absl::Status)> done) {
  Try(std::make_shared<Operation>(Operation{repeat, deadline, std::move(rpc), std::move(done),
                                            boost::asio::steady_timer(io_), current_}));
}

TimePoint EtcdAccess::AttemptLimit(const Operation& operation) const {
  const size_t left = options_.endpoints.size() - operation.tried;
  const TimePoint now = Now();
  if (left <= 1) return operation.deadline;
  const Duration share = (operation.deadline - now) / static_cast<int64_t>(left);
  return std::min(operation.deadline, now + std::max(share, kShortestAttempt));
}

void EtcdAccess::Try(const std::shared_ptr<Operation>& operation) {
  if (!options_.user.empty() && token_.empty() && !no_authentication_) return Authenticate(operation);
  const TimePoint limit =
      operation->repeat == Repeat::kAllowed ? AttemptLimit(*operation) : operation->deadline;
  Send(operation->endpoint, operation->rpc, limit, [this, operation](const absl::Status& status) {
    if (status.ok()) {
      current_ = operation->endpoint;
      return Finish(operation, status);
    }
    Failed(operation, ExplainEtcdError(status, context_));
  });
}

void EtcdAccess::Send(size_t endpoint, const EtcdRpc& start, TimePoint limit,
                      std::function<void(const absl::Status&)> then) {
  calls_.Send(
      limit,
      [start, channel = Channel(endpoint), token = token_](grpc::ClientContext* context,
                                                           std::function<void(grpc::Status)> done) {
        // A member without a leader answers at once instead of waiting for one.
        context->AddMetadata("hasleader", "true");
        if (!token.empty()) context->AddMetadata("token", token);
        start(channel, context, std::move(done));
      },
      std::move(then));
}

void EtcdAccess::Authenticate(const std::shared_ptr<Operation>& operation) {
  struct Messages {
    etcdserverpb::AuthenticateRequest request;
    etcdserverpb::AuthenticateResponse reply;
    std::unique_ptr<etcdserverpb::Auth::Stub> stub;
  };
  auto messages = std::make_shared<Messages>();
  messages->request.set_name(options_.user);
  messages->request.set_password(options_.password);
  const EtcdRpc rpc = [messages](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                                 std::function<void(grpc::Status)> done) {
    messages->stub = etcdserverpb::Auth::NewStub(channel);
    messages->stub->async()->Authenticate(context, &messages->request, &messages->reply, std::move(done));
  };
  Send(operation->endpoint, rpc, AttemptLimit(*operation),
       [this, operation, messages](const absl::Status& status) {
         if (status.ok()) {
           token_ = messages->reply.token();
           return Try(operation);
         }
         if (absl::StrContains(status.message(), "etcdserver: authentication is not enabled")) {
           no_authentication_ = true;
           return Try(operation);
         }
         EtcdError error = ExplainEtcdError(status, context_);
         error.not_done = true;  // the operation's own RPC has not been sent
         Failed(operation, error);
       });
}

void EtcdAccess::Failed(const std::shared_ptr<Operation>& operation, const EtcdError& error) {
  const size_t endpoint = operation->endpoint;
  operation->errors[endpoint] = error;
  switch (error.next) {
    case EtcdError::Next::kGrantLease:
      return Finish(operation, absl::NotFoundError(error.status.message()));
    case EtcdError::Next::kAuthenticate:
      token_.clear();
      no_authentication_ = false;
      if (options_.user.empty() || std::exchange(operation->authenticated_again, true)) break;
      return Try(operation);
    case EtcdError::Next::kStop:
      break;
    case EtcdError::Next::kNextEndpoint:
    case EtcdError::Next::kWrongEndpoint:
      // A channel that has failed waits before it connects again; a new one does not.
      channels_[endpoint].reset();
      if (current_ == endpoint) current_ = (endpoint + 1) % channels_.size();
      if (operation->repeat == Repeat::kAllowed || error.not_done) return Rotate(operation);
      return Finish(operation, AllFailed(*operation));
  }
  Finish(operation, WithContext(error.status, absl::StrCat("etcd at ", options_.endpoints[endpoint])));
}

void EtcdAccess::Rotate(const std::shared_ptr<Operation>& operation) {
  operation->endpoint = (operation->endpoint + 1) % channels_.size();
  if (++operation->tried < channels_.size() && Now() < operation->deadline) return Try(operation);
  operation->tried = 0;
  const bool all_wrong =
      operation->errors.size() == channels_.size() &&
      std::all_of(operation->errors.begin(), operation->errors.end(),
                  [](const auto& item) { return item.second.next == EtcdError::Next::kWrongEndpoint; });
  const Duration left = operation->deadline - Now();
  if (all_wrong || left <= kFirstPause) return Finish(operation, AllFailed(*operation));
  operation->timer.expires_after(std::min(operation->pause, left / 2));
  operation->pause = std::min(2 * operation->pause, kLongestPause);
  operation->timer.async_wait(
      alive_.Guard([this, operation](const boost::system::error_code& /*error*/) { Try(operation); }));
}

absl::Status EtcdAccess::AllFailed(const Operation& operation) const {
  std::string text = "etcd";
  absl::string_view separator = " at ";
  bool wrong = true;
  bool late = true;
  for (const auto& [endpoint, error] : operation.errors) {
    absl::StrAppend(&text, separator, options_.endpoints[endpoint], ": ", error.status.message());
    separator = "; at ";
    wrong = wrong && error.next == EtcdError::Next::kWrongEndpoint;
    late = late && absl::IsDeadlineExceeded(error.status);
  }
  if (wrong) return absl::FailedPreconditionError(text);
  return late ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

void EtcdAccess::Finish(const std::shared_ptr<Operation>& operation, const absl::Status& status) {
  operation->rpc = nullptr;
  std::exchange(operation->done, nullptr)(status);
}

}  // namespace ddprun
