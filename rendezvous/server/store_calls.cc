#include "rendezvous/server/store_calls.h"

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

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

}  // namespace

// A call that nobody has answered is open; who closes it answers it.
struct StoreCalls::Shared {
  explicit Shared(boost::asio::io_context& io) : io(io) {}

  // False: all calls have been ended, this one is to be, too.
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
  StoreHub* hub = nullptr;  // with store_id of the thread of io only
  uint64_t store_id = 0;
  absl::Mutex mutex;
  absl::flat_hash_set<Call*> open ABSL_GUARDED_BY(mutex);
  absl::Status why ABSL_GUARDED_BY(mutex);  // not OK: all calls have been ended
};

// Lives until gRPC is done with it, the store has let go of it and nothing that was posted is left.
class StoreCalls::Call final : public grpc::ServerUnaryReactor,
                               public StoreHub::Waiter,
                               public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<Shared> shared, StoreQuestion question)
      : shared_(std::move(shared)), question_(std::move(question)) {}

  void Start() {
    until_done_ = shared_from_this();
    if (!shared_->Open(this)) return Finish(ToGrpc(shared_->Why()));
    boost::asio::post(shared_->io, [self = shared_from_this()] { self->Ask(); });
  }

  // ServerUnaryReactor. The client gave up, its time is over, or the connection broke.
  void OnCancel() override {
    boost::asio::post(shared_->io, [self = shared_from_this()] {
      if (!self->shared_->Close(self.get())) return;
      self->LeaveHub();
      self->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client waits no more"));
    });
  }
  void OnDone() override { const std::shared_ptr<Call> last = std::move(until_done_); }

  // StoreHub::Waiter
  void OnWoken() override {
    const std::shared_ptr<Call> self = shared_from_this();
    StoreHub* const hub = hub_;
    LeaveHub();
    if (shared_->Close(this)) Finish(ToGrpc(Answer(hub->store())));
  }
  void OnStoreGone() override {
    hub_ = nullptr;
    const std::shared_ptr<Call> self = std::move(until_left_);
    if (shared_->Close(this)) Finish(ToGrpc(absl::AbortedError("the store has been taken away")));
  }

 private:
  void Ask() {
    // Closed while it asks: then nobody else touches the reply.
    if (!shared_->Close(this)) return;
    if (shared_->hub == nullptr) return Finish(ToGrpc(absl::UnavailableError("there is no store here now")));
    if (question_.store_id != 0 && question_.store_id != shared_->store_id) {
      return Finish(ToGrpc(absl::AbortedError(absl::StrCat(
          "the store ", absl::Hex(question_.store_id),
          " is that of an earlier round: greet the one that is here, ", absl::Hex(shared_->store_id)))));
    }
    StoreHub& hub = *shared_->hub;
    EnterHub(hub);
    const absl::StatusOr<bool> done = question_.ask({hub, id_, shared_->store_id});
    const bool waits = done.ok() && !*done;
    if (!waits || !shared_->Open(this)) {
      LeaveHub();
      Finish(ToGrpc(waits ? shared_->Why() : done.ok() ? Answer(hub.store()) : done.status()));
    }
    hub.Wake();
  }

  absl::Status Answer(const KvStore& store) const {
    return question_.answer ? question_.answer(store) : absl::OkStatus();
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
  const StoreQuestion question_;
  std::shared_ptr<Call> until_done_;
  // Of the thread of io only:
  StoreHub* hub_ = nullptr;  // in which it is
  ConnId id_;
  std::shared_ptr<Call> until_left_;
};

StoreCalls::StoreCalls(boost::asio::io_context& io) : shared_(std::make_shared<Shared>(io)) {}

StoreCalls::~StoreCalls() = default;

void StoreCalls::Use(StoreHub* hub) {
  shared_->hub = hub;
  shared_->store_id = hub == nullptr ? 0 : RandomId();
}

grpc::ServerUnaryReactor* StoreCalls::Start(grpc::CallbackServerContext* context, const absl::Status& checked,
                                            StoreQuestion question) {
  if (!checked.ok()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(checked));
    return reactor;
  }
  const auto call = std::make_shared<Call>(shared_, std::move(question));
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
