#include "rendezvous/grpc/open_requests.h"

#include <utility>

namespace ddprun {

bool OpenRequests::Add(grpc::ServerUnaryReactor* reactor) {
  absl::MutexLock lock(&mutex_);
  if (!ended_) reactors_.insert(reactor);
  return !ended_;
}

bool OpenRequests::Has(grpc::ServerUnaryReactor* reactor) {
  absl::MutexLock lock(&mutex_);
  return reactors_.contains(reactor);
}

bool OpenRequests::Take(grpc::ServerUnaryReactor* reactor) {
  absl::MutexLock lock(&mutex_);
  return reactors_.erase(reactor) > 0;
}

std::set<grpc::ServerUnaryReactor*> OpenRequests::End() {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  return std::exchange(reactors_, {});
}

}  // namespace ddprun
