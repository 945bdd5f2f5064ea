#include "rendezvous/grpc/store_calls.h"

#include <grpcpp/grpcpp.h>

#include <random>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/post.hpp"
#include "proto/grpc_status.h"

namespace ddprun {
namespace {

// Estimated memory of a call without its messages, in gRPC and in the store.
constexpr uint64_t kCallBytes = 16 << 10;
// A client acknowledges a reply with window updates. They take at most one byte per this many bytes of reply.
constexpr uint64_t kReplyBytesForAByte = 64;

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

}  // namespace

// A call is open until it is answered. A caller for which Close returns true must answer the call.
struct StoreCalls::Shared {
  Shared(boost::asio::io_context& io, uint64_t max_bytes, OnMessage on_message)
      : io(io), limit(max_bytes), on_message(std::move(on_message)) {}

  // Returns false if EndAll has been called. The caller must then answer the call.
  bool Open(Call* call) {
    absl::MutexLock lock(&mutex);
    if (why.ok()) open.insert(call);
    return why.ok();
  }
  bool Close(Call* call) {
    absl::MutexLock lock(&mutex);
    return open.erase(call) > 0;
  }
  absl::Status Why() {
    absl::MutexLock lock(&mutex);
    return why;
  }

  boost::asio::io_context& io;
  ByteLimit limit;
  const OnMessage on_message;
  StoreHub* hub = nullptr;  // hub and store_id are used on the thread of io only
  uint64_t store_id = 0;
  absl::Mutex mutex;
  absl::flat_hash_set<Call*> open ABSL_GUARDED_BY(mutex);
  absl::Status why ABSL_GUARDED_BY(mutex);  // set by EndAll; OK before
};

// Lives until gRPC has finished with the call, the call has left the store, and all handlers posted for it
// have run.
class StoreCalls::Call final : public grpc::ServerUnaryReactor,
                               public StoreHub::Waiter,
                               public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<Shared> shared, std::string peer, uint64_t store_id, StoreQuestion question)
      : shared_(std::move(shared)),
        peer_(std::move(peer)),
        held_(&shared_->limit),
        store_id_(store_id),
        question_(std::move(question)) {}

  // Must be called before Start. If it fails, Start must not be called.
  absl::Status Hold(uint64_t request_bytes) { return held_.Add(kCallBytes + request_bytes, "a request"); }

  void Start() {
    until_done_ = shared_from_this();
    if (!shared_->Open(this)) return Finish(ToGrpc(shared_->Why()));
    boost::asio::post(shared_->io, [self = shared_from_this()] { self->Ask(); });
  }

  // ServerUnaryReactor

  // The client cancelled the call, the deadline of the call expired, or the connection broke.
  void OnCancel() override {
    boost::asio::post(shared_->io, [self = shared_from_this()] {
      if (!self->shared_->Close(self.get())) return;
      self->LeaveHub();
      self->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client stopped waiting"));
    });
  }
  void OnDone() override {
    if (shared_->on_message) shared_->on_message(peer_, held_.bytes() / kReplyBytesForAByte);
    const std::shared_ptr<Call> last = std::move(until_done_);
  }

  // StoreHub::Waiter
  void OnWoken() override {
    const std::shared_ptr<Call> self = shared_from_this();
    StoreHub* const hub = hub_;
    LeaveHub();
    if (shared_->Close(this)) Finish(ToGrpc(Answer(*hub)));
  }
  void OnStoreGone() override {
    hub_ = nullptr;
    const std::shared_ptr<Call> self = std::move(until_left_);
    if (shared_->Close(this)) Finish(ToGrpc(absl::AbortedError("the store was removed")));
  }

 private:
  void Ask() {
    // The call is closed while it executes, so that no other thread accesses the reply.
    if (!shared_->Close(this)) return;
    if (shared_->hub == nullptr) return Finish(ToGrpc(absl::UnavailableError("there is no store now")));
    if (store_id_ != 0 && store_id_ != shared_->store_id) {
      return Finish(ToGrpc(absl::AbortedError(absl::StrCat(
          "the store ", absl::Hex(store_id_), " belongs to an earlier round; greet the current one, ",
          absl::Hex(shared_->store_id)))));
    }
    StoreHub& hub = *shared_->hub;
    EnterHub(hub);
    const absl::StatusOr<bool> done = question_.ask(Turn(hub));
    const bool waits = done.ok() && !*done;
    if (waits && question_.tells_that_it_waits) StartSendInitialMetadata();
    if (!waits || !shared_->Open(this)) {
      LeaveHub();
      Finish(ToGrpc(waits ? shared_->Why() : done.ok() ? Answer(hub) : done.status()));
    }
    hub.Wake();
  }

  StoreTurn Turn(StoreHub& hub) { return {hub, id_, shared_->store_id, held_}; }
  absl::Status Answer(StoreHub& hub) {
    return question_.answer ? question_.answer(Turn(hub)) : absl::OkStatus();
  }

  void EnterHub(StoreHub& hub) {
    hub_ = &hub;
    id_ = hub.Enter(this);
    until_left_ = shared_from_this();
  }
  void LeaveHub() {
    if (hub_ == nullptr) return;
    std::exchange(hub_, nullptr)->Leave(id_);
    until_left_.reset();
  }

  const std::shared_ptr<Shared> shared_;
  const std::string peer_;
  HeldBytes held_;           // held until gRPC has sent the reply
  const uint64_t store_id_;  // the store that the client expects; 0 means any store
  const StoreQuestion question_;
  std::shared_ptr<Call> until_done_;  // keeps this object alive until OnDone
  // Used on the thread of io only:
  StoreHub* hub_ = nullptr;  // the hub that the call has entered, or null
  ConnId id_;
  std::shared_ptr<Call> until_left_;  // keeps this object alive while it is in the hub
};

StoreCalls::StoreCalls(boost::asio::io_context& io, uint64_t max_bytes, OnMessage on_message)
    : shared_(std::make_shared<Shared>(io, max_bytes, std::move(on_message))) {}

StoreCalls::~StoreCalls() = default;

void StoreCalls::Use(StoreHub* hub) {
  shared_->hub = hub;
  shared_->store_id = hub == nullptr ? 0 : RandomId();
}

grpc::ServerUnaryReactor* StoreCalls::Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                            uint64_t store_id, uint64_t request_bytes,
                                            StoreQuestion question) {
  std::string peer = context->peer();
  if (shared_->on_message) shared_->on_message(peer, request_bytes);
  const auto call = std::make_shared<Call>(shared_, std::move(peer), store_id, std::move(question));
  const absl::Status refused = checked.ok() ? call->Hold(request_bytes) : checked;
  if (!refused.ok()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(refused));
    return reactor;
  }
  call->Start();
  return call.get();
}

void StoreCalls::EndAll(const std::string& why) {
  absl::flat_hash_set<Call*> ended;
  {
    absl::MutexLock lock(&shared_->mutex);
    if (shared_->why.ok()) shared_->why = absl::UnavailableError(why);
    ended.swap(shared_->open);
  }
  for (Call* call : ended) call->Finish(ToGrpc(absl::UnavailableError(why)));
}

}  // namespace ddprun
