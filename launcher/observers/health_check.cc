#include "launcher/observers/health_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/ip/tcp.hpp"
#include "net/http_server.h"
#include "net/tcp.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kMaxConnections = 64;
constexpr HttpLimits kLimits = {
    .request_deadline = seconds(3), .reply_deadline = seconds(3), .max_header_bytes = 4 << 10};
// Pause before retrying accept after an error such as EMFILE.
constexpr Duration kAcceptPause = milliseconds(100);
constexpr Duration kTurn = seconds(1);

}  // namespace

class HealthCheck::Server {
 public:
  explicit Server(Shared* shared)
      : shared_(*shared),
        acceptor_(io_),
        pause_(io_),
        handler_([this](const HttpTarget&) { return Answer(); }) {}

  // Returns the port on which the server listens.
  absl::StatusOr<int> Open(int port) {
    error_code ec = ListenOnAllAddresses(acceptor_, static_cast<uint16_t>(port), kMaxConnections);
    if (ec) {
      return absl::FailedPreconditionError(absl::StrCat("cannot listen on port ", port, ": ", ec.message()));
    }
    const int bound = acceptor_.local_endpoint(ec).port();
    Accept();
    return bound;
  }
  void Run() { io_.run(); }
  void Stop() { io_.stop(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return AcceptLater();
      ++connections_;
      ServeHttp(std::move(socket), handler_, kLimits, [this] {
        if (connections_-- == kMaxConnections) Accept();
      });
      if (connections_ < kMaxConnections) Accept();
    });
  }

  void AcceptLater() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](const error_code& error) {
      if (!error) Accept();
    });
  }

  HttpReply Answer() {
    const absl::MutexLock lock(&shared_.mutex);
    HealthPage page = PageOf(shared_.health, std::chrono::steady_clock::now());
    return {.status = page.status, .content_type = "application/json", .body = std::move(page.json)};
  }

  Shared& shared_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  const HttpHandler handler_;
  int connections_ = 0;
};

absl::StatusOr<std::unique_ptr<HealthCheck>> HealthCheck::Open(asio::io_context& loop, int port) {
  auto shared = std::make_unique<Shared>();
  auto server = std::make_unique<Server>(shared.get());
  const absl::StatusOr<int> bound = server->Open(port);
  if (!bound.ok()) return bound.status();
  return std::unique_ptr<HealthCheck>(new HealthCheck(loop, std::move(shared), std::move(server), *bound));
}

HealthCheck::HealthCheck(asio::io_context& loop, std::unique_ptr<Shared> shared,
                         std::unique_ptr<Server> server, int port)
    : shared_(std::move(shared)), server_(std::move(server)), port_(port), timer_(loop) {
  Turn();
  thread_ = std::thread([server = server_.get()] { server->Run(); });
}

HealthCheck::~HealthCheck() {
  server_->Stop();
  thread_.join();
}

void HealthCheck::Turn() {
  {
    const absl::MutexLock lock(&shared_->mutex);
    shared_->health.last_turn = std::chrono::steady_clock::now();
  }
  timer_.expires_after(kTurn);
  timer_.async_wait([this](const error_code& error) {
    if (!error) Turn();
  });
}

void HealthCheck::OnState(AgentMachine::State state, Round round, int alive, TimePoint) {
  const absl::MutexLock lock(&shared_->mutex);
  shared_->health.state = state;
  shared_->health.round = round;
  shared_->health.workers = alive;
}

void HealthCheck::OnWorkersGone(const std::vector<std::string>& unkillable, TimePoint) {
  const absl::MutexLock lock(&shared_->mutex);
  shared_->health.unkillable = unkillable;
}

}  // namespace ddprun
