#include "launcher/worker_stores.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "boost/asio/post.hpp"
#include "net/port_listener.h"

namespace ddprun {
namespace {

// How long a withdrawn store waits for its clients to disconnect.
constexpr Duration kLinger = seconds(5);

}  // namespace

FreshStores::FreshStores(boost::asio::io_context& io, std::string address, C10dServerOptions options)
    : io_(io), address_(std::move(address)), options_(std::move(options)) {}

absl::StatusOr<int> FreshStores::Offer() {
  Withdraw();
  ASSIGN_OR_RETURN(current_, WorkerStore::Open(io_, address_, 0, options_),
                   "opening the worker store of the next round");
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

absl::StatusOr<int> WorkerHostedStores::Offer() {
  PortHandlers handlers;
  handlers.c10d = [](int fd) { close(fd); };
  // Probe all addresses, because the worker binds the port on all addresses.
  ASSIGN_OR_RETURN(const std::unique_ptr<PortListener> probe,
                   PortListener::Open(io_, "", 0, std::move(handlers)),
                   "looking for a port for the worker store of the next round");
  return probe->port();
}

}  // namespace ddprun
