#include "rendezvous/client/unary_calls.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/post.hpp"
#include "proto/grpc_status.h"

namespace ddprun {

struct UnaryCalls::Call {
  grpc::ClientContext context;
  Start start;
  std::function<void(const absl::Status&)> then;  // on the thread of the io_context
};

// The calls in flight. Shared with gRPC's threads.
//
// A thread of gRPC must not own what a call uses when it has ended: the last channel must not be destroyed there (gRPC 1.51
// joins that thread then).
class UnaryCalls::Calls {
 public:
  void Add(std::shared_ptr<Call> call) {
    absl::MutexLock lock(&mutex_);
    ++left_;
    calls_.emplace(call.get(), std::move(call));
  }
  // Called by a thread of gRPC, as the last use of the call.
  void Ended(Call* call, const grpc::Status& status, boost::asio::io_context& io) {
    std::shared_ptr<Call> owned;
    {
      absl::MutexLock lock(&mutex_);
      owned = std::move(calls_.extract(call).mapped());
    }
    boost::asio::post(io, [owned = std::move(owned), status = FromGrpc(status)] { owned->then(status); });
    absl::MutexLock lock(&mutex_);
    --left_;  // the io_context may be destroyed afterwards
  }
  // Cancels all, and waits until they have ended.
  void End() {
    std::map<Call*, std::shared_ptr<Call>> calls;
    {
      absl::MutexLock lock(&mutex_);
      calls = calls_;
    }
    // Without the lock: TryCancel may call Ended.
    for (const auto& [call, owned] : calls) owned->context.TryCancel();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* left) { return *left == 0; }, &left_));
  }

 private:
  absl::Mutex mutex_;
  std::map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  int left_ ABSL_GUARDED_BY(mutex_) = 0;  // that Ended has not completed
};

UnaryCalls::UnaryCalls(boost::asio::io_context& io) : io_(io), calls_(std::make_shared<Calls>()) {}

UnaryCalls::~UnaryCalls() {
  alive_.End();
  calls_->End();
}

void UnaryCalls::Send(TimePoint limit, Start start, std::function<void(const absl::Status&)> then) {
  auto call = std::make_shared<Call>();
  call->start = std::move(start);
  call->then = alive_.Guard(std::move(then));
  call->context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::ceil<std::chrono::microseconds>(limit - std::chrono::steady_clock::now()));
  calls_->Add(call);
  call->start(&call->context, [call = call.get(), calls = calls_, &io = io_](const grpc::Status& status) {
    calls->Ended(call, status, io);
  });
}

}  // namespace ddprun
