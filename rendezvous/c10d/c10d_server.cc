#include "rendezvous/c10d/c10d_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"
#include "boost/asio/post.hpp"

namespace ddprun {

namespace asio = boost::asio;
using boost::system::error_code;

C10dServer::C10dServer(asio::io_context& io, C10dServerOptions options)
    : io_(io),
      poll_set_(PollSet::Of(io)),
      options_(std::move(options)),
      hub_(options_.store),
      grace_(io),
      linger_(io) {}

C10dServer::~C10dServer() = default;

void C10dServer::Serve(int fd) {
  if (closing_) {
    ::close(fd);
    return;
  }
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  C10dSession::Owner* const owner = this;
  auto session = std::make_unique<C10dSession>(fd, &poll_set_, &hub_, options_.session, owner);
  if (const absl::Status status = session->Start(); !status.ok()) {
    if (options_.on_error) options_.on_error(session->peer(), status);
    return;
  }
  const ConnId id = session->id();
  sessions_.emplace(id, std::move(session));
}

absl::Status C10dServer::OnRequest(C10dSession& session, const c10d::Request& request) {
  in_turn_ = true;
  absl::Status status = HandleC10dRequest(request, session.id(), session.dialect(), options_.max_reply_bytes,
                                          &hub_.store(), session.reply(), hub_.woken());
  hub_.Wake();
  return status;
}

void C10dServer::OnWoken(C10dSession& session) {
  to_flush_.push_back(&session);
  if (in_turn_ || to_flush_.size() > 1) return;
  // The session was woken outside a turn of this server, for example by a gRPC call. The caller may wake more
  // sessions, so a posted task flushes all of them together.
  asio::post(io_, alive_.Guard([this] { OnTurnDone(); }));
}

void C10dServer::OnTurnDone() {
  in_turn_ = false;
  if (!to_flush_.empty()) {
    for (C10dSession* const session : to_flush_) session->Flush();
    to_flush_.clear();
  }
  if (!closed_.empty()) {
    closed_.clear();
    CheckClosed();
  }
}

void C10dServer::OnGrace(C10dSession& session) {
  graces_.emplace_back(std::chrono::steady_clock::now() + options_.session.grace, session.id());
  if (graces_.size() == 1) AwaitGrace();
}

void C10dServer::AwaitGrace() {
  grace_.expires_at(graces_.front().first);
  grace_.async_wait(alive_.Guard([this](error_code) {
    const TimePoint now = std::chrono::steady_clock::now();
    while (!graces_.empty() && graces_.front().first <= now) {
      const auto it = sessions_.find(graces_.front().second);
      graces_.pop_front();
      if (it != sessions_.end()) it->second->EndGrace();
      OnTurnDone();
    }
    if (!graces_.empty()) AwaitGrace();
  }));
}

void C10dServer::OnClosed(C10dSession& session, const absl::Status& why) {
  if (!why.ok() && !absl::IsUnavailable(why) && options_.on_error) options_.on_error(session.peer(), why);
  const auto it = sessions_.find(session.id());
  closed_.push_back(std::move(it->second));
  sessions_.erase(it);
}

void C10dServer::Close(Duration linger, absl::AnyInvocable<void()> done) {
  closing_ = true;
  done_ = std::move(done);
  linger_.expires_after(linger);
  linger_.async_wait(alive_.Guard([this](error_code ec) {
    if (ec) return;
    to_flush_.clear();
    sessions_.clear();
    CheckClosed();
  }));
  // Drain may close a session immediately, which removes the session from sessions_.
  std::vector<C10dSession*> draining;
  draining.reserve(sessions_.size());
  for (const auto& [id, session] : sessions_) draining.push_back(session.get());
  for (C10dSession* const session : draining) session->Drain();
  OnTurnDone();
  CheckClosed();
}

void C10dServer::CheckClosed() {
  if (!closing_ || !sessions_.empty() || !done_) return;
  linger_.cancel();
  asio::post(io_, std::exchange(done_, {}));
}

WorkerStore::WorkerStore(boost::asio::io_context& io, C10dServerOptions options)
    : server_(io, std::move(options)) {}

absl::StatusOr<std::unique_ptr<WorkerStore>> WorkerStore::Open(boost::asio::io_context& io,
                                                               const std::string& address, int port,
                                                               C10dServerOptions options) {
  PortHandlers handlers;
  if (options.on_error) {
    handlers.on_full = [report = options.on_error](const absl::Status& why) { report("new clients", why); };
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
