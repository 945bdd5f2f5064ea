#include "rendezvous/server/c10d_server.h"

#include <utility>

#include "boost/asio/post.hpp"

namespace ddprun {

namespace asio = boost::asio;
using boost::system::error_code;

C10dServer::C10dServer(asio::io_context& io, C10dServerOptions options)
    : io_(io), options_(std::move(options)), store_(options_.store), linger_(io) {}

C10dServer::~C10dServer() {
  for (const auto& [id, session] : sessions_) session->Abandon();
}

void C10dServer::Serve(asio::ip::tcp::socket socket) {
  if (closing_) return;
  error_code ec;
  socket.set_option(asio::ip::tcp::no_delay(true), ec);
  const ConnId id(next_conn_++);
  C10dSession::Owner* const owner = this;
  const auto session = std::make_shared<C10dSession>(std::move(socket), id, options_.session, owner);
  sessions_.emplace(id, session);
  session->Start();
}

absl::Status C10dServer::OnRequest(C10dSession& session, const c10d::Request& request) {
  absl::Status status = HandleC10dRequest(request, session.id(), session.dialect(), options_.max_reply_bytes,
                                          &store_, session.reply(), &woken_);
  for (const ConnId conn : woken_) {
    // At once, so that a later CANCEL_WAIT of the same connection is answered after it; sent with the batch.
    const auto it = sessions_.find(conn);
    if (it == sessions_.end()) continue;
    c10d::AppendU8(static_cast<uint8_t>(c10d::WaitReply::kStopWaiting), it->second->reply());
    if (it->second.get() != &session) to_flush_.push_back(it->second);
  }
  woken_.clear();
  return status;
}

void C10dServer::OnBatchDone() {
  if (to_flush_.empty()) return;
  for (const auto& session : std::exchange(to_flush_, {})) session->Flush();
}

void C10dServer::OnClosed(C10dSession& session, const absl::Status& why) {
  store_.Forget(session.id());
  if (!why.ok() && !absl::IsUnavailable(why) && options_.on_error) options_.on_error(session.peer(), why);
  sessions_.erase(session.id());
  CheckClosed();
}

void C10dServer::Close(Duration linger, absl::AnyInvocable<void()> done) {
  closing_ = true;
  done_ = std::move(done);
  linger_.expires_after(linger);
  linger_.async_wait([this, alive = std::weak_ptr<void>(alive_)](error_code ec) {
    if (ec || alive.expired()) return;
    for (const auto& [id, session] : std::exchange(sessions_, {})) session->Abandon();
    CheckClosed();
  });
  // Draining may end a session at once, which then leaves sessions_.
  std::vector<std::shared_ptr<C10dSession>> draining;
  for (const auto& [id, session] : sessions_) draining.push_back(session);
  for (const auto& session : draining) session->Drain();
  CheckClosed();
}

void C10dServer::CheckClosed() {
  if (!closing_ || !sessions_.empty() || !done_) return;
  linger_.cancel();
  asio::post(io_, std::exchange(done_, {}));
}

}  // namespace ddprun
