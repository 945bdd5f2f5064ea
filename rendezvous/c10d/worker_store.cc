#include "rendezvous/c10d/worker_store.h"

#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"

namespace ddprun {

WorkerStore::WorkerStore(boost::asio::io_context& io, C10dServerOptions options)
    : server_(io, std::move(options)) {}

absl::StatusOr<std::unique_ptr<WorkerStore>> WorkerStore::Open(boost::asio::io_context& io,
                                                               const std::string& address, int port,
                                                               C10dServerOptions options) {
  PortHandlers handlers;
  if (options.on_error) {
    handlers.on_full = [tell = options.on_error](const absl::Status& why) { tell("new clients", why); };
  }
  auto store = absl::WrapUnique(new WorkerStore(io, std::move(options)));
  handlers.c10d = [server = &store->server_](int fd) { server->Serve(fd); };
  ASSIGN_OR_RETURN(store->listener_, PortListener::Open(io, address, port, std::move(handlers)),
                   "opening a worker store");
  return store;
}

void WorkerStore::Close(Duration linger, absl::AnyInvocable<void()> done) {
  listener_->Close();
  server_.Close(linger, std::move(done));
}

}  // namespace ddprun
