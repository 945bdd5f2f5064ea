#include "rendezvous/server/coordinator_host.h"

#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/uuid.h"
#include "base/wake_timer.h"
#include "boost/asio/post.hpp"
#include "boost/json/serialize.hpp"
#include "proto/versions.h"
#include "rendezvous/coordinator/local_link.h"

namespace ddprun {
namespace {

// How long the host waits for store clients to disconnect after their store has closed.
constexpr Duration kStoreLinger = seconds(1);

}  // namespace

CoordinatorHost::CoordinatorHost(boost::asio::io_context& io, Coordinator::Log log, CoordinatorLimits limits)
    : io_(io),
      log_(log),
      takes_any_job_(!limits.registered),
      coordinator_(std::make_unique<AsioWakeTimer>(io), std::move(log), limits),
      store_(NewStore()),
      grpc_(io, &coordinator_, ClientClosed()),
      pages_([this](const HttpTarget& target) { return Page(target); }),
      close_timer_(io) {
  grpc_.ServeStore(&store_->hub());
}

absl::StatusOr<std::unique_ptr<CoordinatorHost>> CoordinatorHost::Open(boost::asio::io_context& io,
                                                                       const std::string& address, int port,
                                                                       Coordinator::Log log,
                                                                       CoordinatorLimits limits) {
  std::unique_ptr<CoordinatorHost> host(new CoordinatorHost(io, std::move(log), limits));
  PortHandlers handlers;
  handlers.c10d = [h = host.get()](int fd) { h->store_->Serve(fd); };
  handlers.http = [h = host.get()](boost::asio::ip::tcp::socket socket) {
    ServeHttp(std::move(socket), h->pages_, {.allow_delete = true});
  };
  handlers.grpc = [h = host.get()](int fd) { h->grpc_.Adopt(fd); };
  handlers.on_full = [h = host.get()](const absl::Status& why) { h->log_("port_full", "", why.message()); };
  ASSIGN_OR_RETURN(host->listener_, PortListener::Open(io, address, port, std::move(handlers)));
  return host;
}

absl::StatusOr<std::unique_ptr<CoordinatorHost>> CoordinatorHost::OpenFirst(boost::asio::io_context& io,
                                                                            const std::string& address,
                                                                            const std::vector<int>& ports,
                                                                            const Coordinator::Log& log,
                                                                            CoordinatorLimits limits) {
  absl::StatusOr<std::unique_ptr<CoordinatorHost>> host = absl::InvalidArgumentError("no port");
  for (const int port : ports) {
    host = Open(io, address, port, log, limits);
    if (!absl::IsAlreadyExists(host.status())) break;
    if (ports.size() > 1) log("port_in_use", "", host.status().message());
  }
  return host;
}

std::unique_ptr<CoordinatorLink> CoordinatorHost::Link(const std::string& address) {
  return MakeLocalLink(io_, &coordinator_, address);
}

std::function<void(const std::string& peer, const absl::Status& why)> CoordinatorHost::ClientClosed() {
  return [this](const std::string& peer, const absl::Status& why) {
    log_("store_client_closed", "", absl::StrCat(peer, ": ", why.message()));
  };
}

std::unique_ptr<C10dServer> CoordinatorHost::NewStore() {
  C10dServerOptions options;
  options.on_error = ClientClosed();
  return std::make_unique<C10dServer>(io_, std::move(options));
}

void CoordinatorHost::RenewStore() {
  old_store_ = std::exchange(store_, NewStore());
  grpc_.ServeStore(&store_->hub());
}

void CoordinatorHost::BecomeWitness() {
  witness_.emplace(RandomUuid);
  grpc_.ServeVotes([this](const proto::VoteRequest& request) {
    return witness_->Answer(request, std::chrono::steady_clock::now());
  });
}

std::string CoordinatorHost::LeaderOf(const std::string& job) const {
  return witness_ ? witness_->Leader(job, std::chrono::steady_clock::now()) : leader_;
}

HttpReply CoordinatorHost::DeleteNode(const HttpTarget& target) {
  if (target.path != "/nodes")
    return {.status = 404, .body = "DELETE is supported only for /nodes?job=JOB&node=NODE&token=TOKEN\n"};
  const absl::Status status =
      coordinator_.ReportGone(QueryValue(target.query, "job"), NodeId(QueryValue(target.query, "node")),
                              QueryValue(target.query, "token"));
  if (status.ok()) return {.status = 204};
  return {.status = absl::IsNotFound(status) ? 404 : 403, .body = absl::StrCat(status.message(), "\n")};
}

HttpReply CoordinatorHost::Page(const HttpTarget& target) {
  constexpr char kJson[] = "application/json";
  if (target.is_delete) return DeleteNode(target);
  if (target.path == "/healthz") {
    boost::json::object health = {{"service", "ddprun"}, {"protocol", kProtocolVersion}};
    if (const std::string job = QueryValue(target.query, "job"); !job.empty()) {
      health["has_job"] = coordinator_.HasJob(job);
    }
    if (takes_any_job_) health["takes_any_job"] = true;
    // A process that leads the job names no other.
    const std::string leader = LeaderOf(QueryValue(target.query, "job"));
    if (!leader.empty()) health["leader"] = leader;
    return {.status = 200, .content_type = kJson, .body = boost::json::serialize(health) + "\n"};
  }
  if (target.path == "/status") {
    boost::json::object status = coordinator_.Status();
    if (!leader_.empty()) status["leader"] = leader_;
    return {.status = 200, .content_type = kJson, .body = boost::json::serialize(status) + "\n"};
  }
  if (target.path == "/events") {
    uint64_t after = 0;
    const std::string number = QueryValue(target.query, "after");
    if (!number.empty() && !absl::SimpleAtoi(number, &after))
      return {.status = 400, .body = absl::StrCat("after=", number, ": expected a number\n")};
    const absl::StatusOr<std::string> events = coordinator_.Events(QueryValue(target.query, "job"), after);
    if (events.ok()) return {.status = 200, .content_type = "application/x-ndjson", .body = *events};
    return {.status = absl::IsNotFound(events.status()) ? 404 : 400,
            .body = absl::StrCat(events.status().message(), "\n")};
  }
  return {.status = 404, .body = "no such page; pages: /healthz, /status, /events\n"};
}

void CoordinatorHost::Close(const std::string& reason, Duration farewell, absl::AnyInvocable<void()> done) {
  close_reason_ = reason;
  closed_ = std::move(done);
  farewell_ = farewell;
  coordinator_.set_on_step([this] { boost::asio::post(io_, [this] { CheckAgentsGone(); }); });
  coordinator_.CloseAll(reason);
}

void CoordinatorHost::CloseNow() { coordinator_.CloseAll(close_reason_, /*at_once=*/true); }

void CoordinatorHost::CheckAgentsGone() {
  if (ending_stores_) return;
  if (coordinator_.num_peers() == 0) return EndStores();
  if (coordinator_.num_open_jobs() > 0 || std::exchange(said_farewell_, true)) return;
  close_timer_.expires_after(farewell_);
  close_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndStores();
  });
}

void CoordinatorHost::EndStores() {
  if (std::exchange(ending_stores_, true)) return;
  close_timer_.cancel();
  grpc_.EndStore(absl::StrCat("the store is shutting down: ", close_reason_));
  listener_->Close();
  const auto on_closed = [this] {
    if (--open_stores_ == 0) std::exchange(closed_, nullptr)();
  };
  open_stores_ = old_store_ == nullptr ? 1 : 2;
  store_->Close(kStoreLinger, on_closed);
  if (old_store_ != nullptr) old_store_->Close(kStoreLinger, on_closed);
}

}  // namespace ddprun
