#include "rendezvous/client/grpc_store.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/event.h"
#include "base/status_macros.h"
#include "net/tcp_connect.h"
#include "proto/grpc_status.h"
#include "proto/store.grpc.pb.h"
#include "proto/store_request.h"
#include "rendezvous/client/grpc_channel.h"

namespace ddprun {
namespace {

using Stub = proto::Store::Stub;
template <typename Request, typename Reply>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

// Time limit for each request that checks, after a timeout, whether a wait ended in time. Barrier
// also allows the store at least this time to count the caller, even if the caller's timeout is shorter.
constexpr Duration kCancelTimeout = seconds(5);

void SetTimeout(grpc::ClientContext& context, Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::ceil<std::chrono::microseconds>(timeout));
}

// Checks keys before they are sent, because a server reads all of an oversized message before rejecting it.
absl::Status CheckKeys(absl::string_view name, const std::vector<std::string>& store_keys) {
  StoreRequestCheck check(name);
  check.NumItems(store_keys.size());
  for (const std::string& key : store_keys) check.Key(key);
  return check.status();
}

template <typename Request>
Request WithKeys(const std::vector<std::string>& store_keys) {
  Request request;
  for (const std::string& key : store_keys) request.add_keys(key);
  return request;
}

std::string Owned(absl::string_view bytes) { return std::string(bytes); }

// A Barrier call in flight. The store sends the initial metadata when it has counted the caller.
class BarrierCall final : public grpc::ClientUnaryReactor {
 public:
  // `stub` and `request` must outlive this object.
  void Start(Stub& stub, const proto::BarrierRequest& request, Duration limit) {
    SetTimeout(context_, limit);
    stub.async()->Barrier(&context_, &request, &reply_, this);
    StartCall();
  }
  // Waits for the answer until `deadline`. Returns whether the answer arrived.
  bool AwaitAnswer(TimePoint deadline) { return answered_.WaitUntil(deadline); }
  // Waits until the store has counted the caller or has answered, but not beyond `deadline`.
  void AwaitCount(TimePoint deadline) { counted_or_answered_.WaitUntil(deadline); }
  void Cancel() { context_.TryCancel(); }
  // Waits until the call ends and returns its status.
  absl::Status Answer() {
    answered_.Wait();
    return status_;
  }

 private:
  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) counted_or_answered_.Set();
  }
  void OnDone(const grpc::Status& status) override {
    status_ = FromGrpc(status);
    counted_or_answered_.Set();
    answered_.Set();  // must be last, because the caller may destroy this object afterwards
  }

  grpc::ClientContext context_;
  proto::BarrierReply reply_;
  absl::Status status_;
  Event counted_or_answered_;
  Event answered_;
};

}  // namespace

struct GrpcStore::Impl {
  std::string endpoint;  // for error messages
  Duration timeout;      // time limit for each call that does not wait
  std::unique_ptr<Stub> stub;
  uint64_t store = 0;   // id of the store, set by Connect
  absl::Status broken;  // why the client is unusable; OK while it is usable

  // Returns OK if a request may be sent. `checked` is the result of validating the request.
  absl::Status MaySend(const absl::Status& checked) const {
    RETURN_IF_ERROR(broken);
    return WithContext(checked, absl::StrCat("store ", endpoint));
  }

  template <typename Request, typename Reply>
  absl::Status Call(Method<Request, Reply> method, Request& request, Duration limit, Reply* reply) {
    request.set_store(store);
    grpc::ClientContext context;
    SetTimeout(context, limit);
    return FromGrpc((stub.get()->*method)(&context, request, reply));
  }

  // Converts the status of an RPC for the caller. Errors other than kInvalidArgument and kResourceExhausted
  // make the client unusable.
  absl::Status Outcome(const absl::Status& status, absl::string_view doing) {
    switch (status.code()) {
      case absl::StatusCode::kOk:
        return status;
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kResourceExhausted:
        return WithContext(status, absl::StrCat("store ", endpoint));
      default:
        break;
    }
    broken = absl::Status(
        absl::IsAborted(status) ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable,
        absl::StrCat("store ", endpoint, ", ", doing, ": ", status.message(), "; make a new client"));
    return broken;
  }

  absl::Status TimedOut(absl::string_view doing, Duration limit) const {
    return absl::DeadlineExceededError(
        absl::StrCat("store ", endpoint, ": timed out after ", ToMillis(limit), " ms ", doing));
  }

  // Makes a call that does not wait.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(absl::string_view name, Method<Request, Reply> method, Request request,
                            const absl::Status& checked = absl::OkStatus()) {
    RETURN_IF_ERROR(MaySend(checked));
    Reply reply;
    RETURN_IF_ERROR(Outcome(Call(method, request, timeout, &reply), name));
    return reply;
  }

  // Makes a call that waits for keys.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> AwaitKeys(absl::string_view name, Method<Request, Reply> method, Request request,
                                  const std::vector<std::string>& store_keys, Duration limit) {
    RETURN_IF_ERROR(MaySend(CheckKeys(name, store_keys)));
    const std::string doing = absl::StrCat("waiting for ", AwaitedText(store_keys));
    Reply reply;
    absl::Status status = Call(method, request, limit, &reply);
    if (absl::IsDeadlineExceeded(status)) {
      // The keys may have become ready in time. If the store hangs, this request fails as well.
      auto check = WithKeys<proto::CheckRequest>(store_keys);
      proto::CheckReply checked;
      RETURN_IF_ERROR(Outcome(Call(&Stub::Check, check, kCancelTimeout, &checked), doing));
      if (!checked.ready()) return TimedOut(doing, limit);
      status = Call(method, request, kCancelTimeout, &reply);
      if (absl::IsDeadlineExceeded(status)) return TimedOut(doing, limit);
    }
    RETURN_IF_ERROR(Outcome(status, doing));
    return reply;
  }
};

absl::StatusOr<std::unique_ptr<GrpcStore>> GrpcStore::Connect(const std::string& address, int port,
                                                              Duration timeout) {
  auto impl = std::make_unique<Impl>();
  impl->endpoint = absl::StrCat(address, ":", port);
  impl->timeout = timeout;
  const auto greet = [&](TimePoint deadline) -> absl::Status {
    // Each attempt uses a new channel, because a channel that failed to connect has its own, longer backoff.
    impl->stub = proto::Store::NewStub(MakeCoordinatorChannel(address, port, kMaxStoreMessageBytes));
    grpc::ClientContext context;
    SetTimeout(context, deadline - std::chrono::steady_clock::now());
    proto::GreetReply reply;
    const absl::Status status = FromGrpc(impl->stub->Greet(&context, {}, &reply));
    impl->store = reply.store();
    if (status.code() == absl::StatusCode::kUnimplemented) {
      return absl::FailedPreconditionError("the gRPC server that answered has no store");
    }
    return status.ok() ? status : absl::UnavailableError(status.message());
  };
  RETURN_IF_ERROR(
      ConnectWithRetries(absl::StrCat("connecting to the store at ", impl->endpoint), timeout, greet));
  return absl::WrapUnique(new GrpcStore(std::move(impl)));
}

GrpcStore::GrpcStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcStore::~GrpcStore() = default;

absl::Status GrpcStore::Set(absl::string_view key, absl::string_view value) {
  proto::SetRequest request;
  request.set_key(StoreKey(key));
  request.set_value(Owned(value));
  const absl::Status checked = StoreRequestCheck("Set").Key(request.key()).Value(value).status();
  return impl_->Ask("Set", &Stub::Set, std::move(request), checked).status();
}

absl::Status GrpcStore::MultiSet(absl::Span<const Pair> pairs) {
  proto::MultiSetRequest request;
  StoreRequestCheck check("MultiSet");
  check.NumItems(pairs.size());
  for (const Pair& pair : pairs) {
    auto& added = *request.add_pairs();
    added.set_key(StoreKey(pair.key));
    added.set_value(Owned(pair.value));
    check.Key(added.key()).Value(pair.value);
  }
  return impl_->Ask("MultiSet", &Stub::MultiSet, std::move(request), check.status()).status();
}

absl::Status GrpcStore::Append(absl::string_view key, absl::string_view value) {
  proto::AppendRequest request;
  request.set_key(StoreKey(key));
  request.set_value(Owned(value));
  const absl::Status checked = StoreRequestCheck("Append").Key(request.key()).Value(value).status();
  return impl_->Ask("Append", &Stub::Append, std::move(request), checked).status();
}

absl::StatusOr<std::string> GrpcStore::CompareSet(absl::string_view key, absl::string_view expected,
                                                  absl::string_view desired) {
  proto::CompareSetRequest request;
  request.set_key(StoreKey(key));
  request.set_expected(Owned(expected));
  request.set_desired(Owned(desired));
  StoreRequestCheck check("CompareSet");
  check.Key(request.key()).Value(expected).Value(desired);
  ASSIGN_OR_RETURN(proto::CompareSetReply reply,
                   impl_->Ask("CompareSet", &Stub::CompareSet, std::move(request), check.status()));
  return std::move(*reply.mutable_value());
}

absl::StatusOr<int64_t> GrpcStore::Add(absl::string_view key, int64_t delta) {
  proto::AddRequest request;
  request.set_key(StoreKey(key));
  request.set_delta(delta);
  const absl::Status checked = StoreRequestCheck("Add").Key(request.key()).status();
  ASSIGN_OR_RETURN(const proto::AddReply reply, impl_->Ask("Add", &Stub::Add, std::move(request), checked));
  return reply.sum();
}

absl::StatusOr<std::string> GrpcStore::Get(absl::string_view key, Duration timeout) {
  const std::vector<std::string> store_keys = {StoreKey(key)};
  proto::GetRequest request;
  request.set_key(store_keys[0]);
  ASSIGN_OR_RETURN(proto::GetReply reply,
                   impl_->AwaitKeys("Get", &Stub::Get, std::move(request), store_keys, timeout));
  return std::move(*reply.mutable_value());
}

absl::StatusOr<std::optional<std::string>> GrpcStore::TryGet(absl::string_view key) {
  proto::TryGetRequest request;
  request.set_key(StoreKey(key));
  const absl::Status checked = StoreRequestCheck("TryGet").Key(request.key()).status();
  ASSIGN_OR_RETURN(proto::TryGetReply reply,
                   impl_->Ask("TryGet", &Stub::TryGet, std::move(request), checked));
  if (!reply.has_value()) return std::nullopt;
  return std::move(*reply.mutable_value());
}

absl::StatusOr<std::vector<std::string>> GrpcStore::MultiGet(const std::vector<std::string>& keys,
                                                             Duration timeout) {
  const std::vector<std::string> store_keys = StoreKeys(keys);
  ASSIGN_OR_RETURN(proto::MultiGetReply reply,
                   impl_->AwaitKeys("MultiGet", &Stub::MultiGet, WithKeys<proto::MultiGetRequest>(store_keys),
                                    store_keys, timeout));
  return std::vector<std::string>(std::make_move_iterator(reply.mutable_values()->begin()),
                                  std::make_move_iterator(reply.mutable_values()->end()));
}

absl::StatusOr<bool> GrpcStore::Check(const std::vector<std::string>& keys) {
  const std::vector<std::string> store_keys = StoreKeys(keys);
  ASSIGN_OR_RETURN(const proto::CheckReply reply,
                   impl_->Ask("Check", &Stub::Check, WithKeys<proto::CheckRequest>(store_keys),
                              CheckKeys("Check", store_keys)));
  return reply.ready();
}

absl::Status GrpcStore::Wait(const std::vector<std::string>& keys, Duration timeout) {
  const std::vector<std::string> store_keys = StoreKeys(keys);
  return impl_->AwaitKeys("Wait", &Stub::Wait, WithKeys<proto::WaitRequest>(store_keys), store_keys, timeout)
      .status();
}

absl::StatusOr<int64_t> GrpcStore::NumKeys() {
  ASSIGN_OR_RETURN(const proto::NumKeysReply reply,
                   impl_->Ask("NumKeys", &Stub::NumKeys, proto::NumKeysRequest()));
  return reply.num_keys();
}

absl::StatusOr<std::vector<std::string>> GrpcStore::ListKeys() {
  ASSIGN_OR_RETURN(const proto::ListKeysReply reply,
                   impl_->Ask("ListKeys", &Stub::ListKeys, proto::ListKeysRequest()));
  return UserKeys({reply.keys().begin(), reply.keys().end()});
}

absl::StatusOr<bool> GrpcStore::DeleteKey(absl::string_view key) {
  proto::DeleteKeyRequest request;
  request.set_key(StoreKey(key));
  const absl::Status checked = StoreRequestCheck("DeleteKey").Key(request.key()).status();
  ASSIGN_OR_RETURN(const proto::DeleteKeyReply reply,
                   impl_->Ask("DeleteKey", &Stub::DeleteKey, std::move(request), checked));
  return reply.existed();
}

absl::Status GrpcStore::QueuePush(absl::string_view name, absl::string_view item) {
  proto::QueuePushRequest request;
  request.set_name(StoreKey(name));
  request.set_item(Owned(item));
  const absl::Status checked = StoreRequestCheck("QueuePush").Key(request.name()).Value(item).status();
  return impl_->Ask("QueuePush", &Stub::QueuePush, std::move(request), checked).status();
}

absl::StatusOr<std::string> GrpcStore::QueuePop(absl::string_view name, Duration timeout) {
  RETURN_IF_ERROR(Wait({Owned(name)}, timeout));
  ASSIGN_OR_RETURN(std::optional<std::string> item, TryQueuePop(name));
  if (!item) return QueueIsEmpty(name);
  return *std::move(item);
}

absl::StatusOr<std::optional<std::string>> GrpcStore::TryQueuePop(absl::string_view name) {
  proto::QueuePopRequest request;
  request.set_name(StoreKey(name));
  const absl::Status checked = StoreRequestCheck("QueuePop").Key(request.name()).status();
  ASSIGN_OR_RETURN(proto::QueuePopReply reply,
                   impl_->Ask("QueuePop", &Stub::QueuePop, std::move(request), checked));
  if (!reply.has_item()) return std::nullopt;
  return std::move(*reply.mutable_item());
}

absl::StatusOr<int64_t> GrpcStore::QueueLen(absl::string_view name) {
  proto::QueueLenRequest request;
  request.set_name(StoreKey(name));
  const absl::Status checked = StoreRequestCheck("QueueLen").Key(request.name()).status();
  ASSIGN_OR_RETURN(const proto::QueueLenReply reply,
                   impl_->Ask("QueueLen", &Stub::QueueLen, std::move(request), checked));
  return reply.num_items();
}

absl::Status GrpcStore::Barrier(absl::string_view key, int64_t world_size, Duration timeout) {
  proto::BarrierRequest request;
  request.set_key(StoreKey(key));
  request.set_world_size(world_size);
  RETURN_IF_ERROR(
      impl_->MaySend(StoreRequestCheck("Barrier").Key(request.key()).WorldSize(world_size).status()));
  const std::string doing = absl::StrCat("waiting for barrier ", request.key(), " of ", world_size);
  request.set_store(impl_->store);
  BarrierCall call;
  const TimePoint start = std::chrono::steady_clock::now();
  // The limit of the RPC is longer than `timeout`, because the store must count the caller even if `timeout`
  // is shorter than the round trip.
  call.Start(*impl_->stub, request, std::max(timeout, Duration::zero()) + kCancelTimeout);
  const bool in_time = call.AwaitAnswer(start + timeout);
  if (!in_time) {
    // Stores of earlier versions send no initial metadata while a caller waits, so AwaitCount may block
    // until its deadline. If `timeout` is at least kCancelTimeout, that deadline has already passed.
    call.AwaitCount(start + std::max(timeout, kCancelTimeout));
    call.Cancel();
  }
  const absl::Status status = call.Answer();
  const bool timed_out = absl::IsDeadlineExceeded(status) || (!in_time && absl::IsCancelled(status));
  if (!timed_out) return impl_->Outcome(status, doing);
  // The last caller of the barrier may have arrived in time. If the store hangs, this request fails as well.
  proto::TryGetRequest count_request;
  count_request.set_key(request.key());
  proto::TryGetReply count;
  RETURN_IF_ERROR(impl_->Outcome(impl_->Call(&Stub::TryGet, count_request, kCancelTimeout, &count), doing));
  int64_t num_arrived = 0;
  if (absl::SimpleAtoi(count.value(), &num_arrived) && num_arrived >= world_size) return absl::OkStatus();
  return impl_->TimedOut(doing, timeout);
}

}  // namespace ddprun
