#include "launcher/worker_stores.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "boost/asio/post.hpp"

namespace ddprun {
namespace {

constexpr Duration kLinger = seconds(5);

}  // namespace

FreshStores::FreshStores(boost::asio::io_context& io, std::string address)
    : io_(io), address_(std::move(address)) {}

absl::StatusOr<int> FreshStores::Offer() {
  Withdraw();
  ASSIGN_OR_RETURN(current_, WorkerStore::Open(io_, address_), "opening the worker store of the next round");
  return current_->port();
}

void FreshStores::Withdraw() {
  if (current_ != nullptr) End(std::exchange(current_, nullptr));
}

void FreshStores::End(std::unique_ptr<WorkerStore> store) {
  WorkerStore* const ended = store.get();
  ending_.push_back(std::move(store));
  ended->Close(kLinger, [this, ended] {
    std::erase_if(ending_, [ended](const std::unique_ptr<WorkerStore>& s) { return s.get() == ended; });
  });
}

absl::StatusOr<int> CoordinatorPortStores::Offer() {
  host_->RenewStore();
  return host_->port();
}

}  // namespace ddprun
