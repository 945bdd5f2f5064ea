#include "rendezvous/client/find_coordinator.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/experimental/awaitable_operators.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/this_coro.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "net/endpoint.h"
#include "net/http_client.h"
#include "net/name_lookup.h"
#include "net/tcp.h"
#include "proto/versions.h"
#include "rendezvous/client/health_page.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;  // NOLINT: operator|| on awaitables

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kAnswerTimeout = seconds(5);
// With several ports, a server that does not answer is probably another program.
constexpr Duration kAnswerTimeoutOfMany = seconds(2);
// Timeout of the first connect attempt. It doubles each time it expires, to allow for round trips of more
// than 1 s. The kernel retransmits a lost SYN 1, 3, 7 and 15 s after the first SYN, so after an outage a new
// attempt connects sooner than a pending one.
constexpr Duration kFirstConnectTimeout = seconds(1);
constexpr Duration kFirstPause = milliseconds(20);
constexpr Duration kLongestPause = seconds(1);
// Maximum number of attempts if the server closes the connection without an answer. A coordinator that exits
// may close one connection in this way, and the next attempt is then refused.
constexpr int kMaxHangUps = 3;

asio::awaitable<void> Sleep(Duration d) {
  asio::steady_timer timer(co_await asio::this_coro::executor, d);
  co_await timer.async_wait(kAwait);
}

using Trace = std::function<void(absl::string_view)>;

std::string NoAnswer(absl::string_view where) { return absl::StrCat(where, " did not answer in time"); }

std::string ToText(const tcp::endpoint& endpoint) {
  std::ostringstream text;
  text << endpoint;
  return text.str();
}

// Asio's resolver is not used, because a coroutine that waits for it cannot be cancelled.
asio::awaitable<absl::StatusOr<std::vector<tcp::endpoint>>> Resolve(const std::string& host, int port) {
  const NameLookup lookup(host, port);
  if (lookup.fd() >= 0) {
    asio::posix::stream_descriptor answer(co_await asio::this_coro::executor);
    answer.assign(lookup.fd());
    const absl::Cleanup not_ours = [&answer] { answer.release(); };
    const auto [error] = co_await answer.async_wait(asio::posix::stream_descriptor::wait_read, kAwait);
    if (error) co_return absl::CancelledError(error.message());
  }
  const absl::StatusOr<std::vector<SocketAddress>> found = lookup.Result();
  if (!found.ok()) co_return found.status();
  std::vector<tcp::endpoint> endpoints;
  for (const SocketAddress& address : *found) endpoints.push_back(ToEndpoint(address));
  co_return endpoints;
}

// Returns OK if `answer`, the response to GET /healthz, is from a coordinator with this protocol version.
absl::Status CheckAnswer(const absl::StatusOr<HttpResponse>& answer, absl::string_view where) {
  const HealthPage page = ParseHealthPage(answer.ok() ? answer->body : std::string());
  if (!page.is_ddprun || !page.protocol) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server at ", where, " is not a ddprun coordinator (",
                     absl::IsUnavailable(answer.status())
                         ? "it did not answer GET /healthz; a torch TCPStore does not either"
                         : "its answer to GET /healthz is not a coordinator's",
                     "): give --rdzv-endpoint the address that the first node's ddprun printed, or a free "
                     "port of the first node"));
  }
  if (*page.protocol != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the coordinator at ", where, " speaks version ", *page.protocol,
                     " of the protocol, but this ddprun speaks version ", kProtocolVersion,
                     ": start the same ddprun on all nodes"));
  }
  return absl::OkStatus();
}

// The job that the coordinator should have.
struct WantedJob {
  std::string id;  // empty: any
  bool or_any_job = false;
  bool follows = true;  // FindLimits::follows
};

// Returns OK if the coordinator that gave `answer` has the job; kUnavailable if it has not, because it may get it later. Then sets
// `leader` to the endpoint of the coordinator that has it, if that is known.
absl::Status CheckJob(const HttpResponse& answer, const WantedJob& job, absl::string_view where,
                      std::optional<Endpoint>& leader) {
  if (job.id.empty()) return absl::OkStatus();
  const HealthPage page = ParseHealthPage(answer.body);
  if (page.has_job || (job.or_any_job && page.takes_any_job)) return absl::OkStatus();
  leader = page.leader;
  return absl::UnavailableError(
      absl::StrCat("the coordinator at ", where, " does not have the job ", job.id));
}

// Details of a failed attempt.
struct Failed {
  bool refused = false;                 // the host is up and refused the connection
  bool timed_out = false;               // a connect attempt timed out
  bool hung_up = false;                 // the server closed the connection without an answer
  bool unresolved = false;              // the name server has not answered, or does not know the name
  std::optional<Endpoint> leader = {};  // the process there does not have the job, but knows which one has
};

// Connects to the first of `endpoints` that accepts the connection. Waits for at most `timeout` per
// endpoint. If none accepts, returns the error for the last endpoint.
asio::awaitable<std::pair<error_code, tcp::endpoint>> Connect(tcp::socket& socket,
                                                              const std::vector<tcp::endpoint>& endpoints,
                                                              Duration timeout, const Trace& trace,
                                                              Failed& failed) {
  std::pair<error_code, tcp::endpoint> result(asio::error::not_found, {});
  for (const tcp::endpoint& endpoint : endpoints) {
    socket = tcp::socket(socket.get_executor());
    trace(absl::StrCat("connecting to ", ToText(endpoint)));
    const auto connected = co_await (socket.async_connect(endpoint, kAwait) || Sleep(timeout));
    const error_code error =
        connected.index() == 0 ? std::get<0>(std::get<0>(connected)) : error_code(asio::error::timed_out);
    if (error == asio::error::timed_out) failed.timed_out = true;
    result = {error, endpoint};
    if (!error) break;
    trace(absl::StrCat("no connection: ", error.message()));
  }
  co_return result;
}

// Makes one attempt at one port. The caller may retry after kUnavailable.
asio::awaitable<absl::StatusOr<FoundCoordinator>> TryPort(const std::string& host, int port,
                                                          const WantedJob& job, Duration connect_timeout,
                                                          Duration answer_timeout, const Trace& trace,
                                                          Failed& failed) {
  const std::string where = ToString(Endpoint{host, port});
  const auto executor = co_await asio::this_coro::executor;
  trace(absl::StrCat("resolving ", host));
  failed.unresolved = true;
  const absl::StatusOr<std::vector<tcp::endpoint>> addresses = co_await Resolve(host, port);
  if (!addresses.ok()) {
    co_return absl::UnavailableError(
        absl::StrCat(addresses.status().message(), ": check --rdzv-endpoint=", where));
  }
  failed.unresolved = false;
  tcp::socket socket(executor);
  const auto [connect_error, endpoint] = co_await Connect(socket, *addresses, connect_timeout, trace, failed);
  if (connect_error == asio::error::timed_out) co_return absl::UnavailableError(NoAnswer(where));
  if (connect_error) {
    failed.refused = connect_error == asio::error::connection_refused;
    co_return absl::UnavailableError(
        absl::StrCat("no server listens at ", where, " (", connect_error.message(),
                     "): is the agent of the first node running, and is this its address?"));
  }
  error_code ignored;
  FoundCoordinator found{endpoint.address().to_string(), port,
                         socket.local_endpoint(ignored).address().to_string()};
  // `request` is a named variable because GCC 12 destroys a braced temporary in a co_await expression twice.
  const HttpRequest request{
      .host = host,
      .path = job.id.empty() ? "/healthz" : absl::StrCat("/healthz?job=", QueryEscaped(job.id))};
  const auto asked = co_await (HttpGet(socket, request) || Sleep(answer_timeout));
  const absl::StatusOr<HttpResponse> answer =
      asked.index() == 0
          ? std::get<0>(asked)
          : absl::UnavailableError(absl::StrCat("no answer within ", InSeconds(answer_timeout)));
  failed.hung_up = asked.index() == 0 && absl::IsUnavailable(answer.status());
  trace(absl::StrCat("GET /healthz: ", answer.ok() ? absl::StrCat("HTTP status ", answer->status)
                                                   : std::string(answer.status().message())));
  if (absl::Status good = CheckAnswer(answer, where); !good.ok()) co_return good;
  if (absl::Status good = CheckJob(*answer, job, where, failed.leader); !good.ok()) co_return good;
  co_return found;
}

// Likewise. If the process there does not have the job, and knows which one has, makes an attempt at that one.
asio::awaitable<absl::StatusOr<FoundCoordinator>> TryPortAndLeader(const std::string& host, int port,
                                                                   const WantedJob& job,
                                                                   Duration connect_timeout,
                                                                   Duration answer_timeout,
                                                                   const Trace& trace, Failed& failed) {
  absl::StatusOr<FoundCoordinator> found =
      co_await TryPort(host, port, job, connect_timeout, answer_timeout, trace, failed);
  if (found.ok() || !failed.leader || !job.follows) co_return found;
  const Endpoint leader = *failed.leader;
  trace(absl::StrCat("the coordinator of the job is at ", ToString(leader)));
  Failed there;  // says nothing about this place
  co_return co_await TryPort(leader.host, leader.port, job, connect_timeout, answer_timeout, trace, there);
}

// Where to look for the coordinator.
struct Place {
  std::string host;
  std::vector<int> ports;
};
struct Places {
  std::vector<Place> places;
  WantedJob job;

  bool one() const { return places.size() == 1 && places[0].ports.size() == 1; }
};

// Makes one attempt at each port of `host`, until one has the coordinator. All errors are kUnavailable.
asio::awaitable<absl::StatusOr<FoundCoordinator>> TryHost(const Place& place, const WantedJob& job,
                                                          Duration connect_timeout, const Trace& trace,
                                                          Failed& failed) {
  const std::string& host = place.host;
  std::vector<int> silent;  // nothing listens there
  std::string others;       // what else was found
  for (const int port : place.ports) {
    Failed here;
    const absl::StatusOr<FoundCoordinator> found =
        co_await TryPortAndLeader(host, port, job, connect_timeout, kAnswerTimeoutOfMany, trace, here);
    failed.timed_out |= here.timed_out;
    failed.unresolved = here.unresolved;
    // A host that is not reached at one port is not reached at the others either.
    if (found.ok() || here.unresolved || here.timed_out) co_return found;
    if (here.refused) {
      silent.push_back(port);
    } else {
      absl::StrAppend(&others, "; ", found.status().message());
    }
  }
  co_return absl::UnavailableError(absl::StrCat(
      silent.empty() ? absl::StrCat("no coordinator at ", host)
                     : absl::StrCat("no server listens at ", host, ", ports ", absl::StrJoin(silent, ", ")),
      others));
}

// Makes one attempt at each place, until one has the coordinator.
asio::awaitable<absl::StatusOr<FoundCoordinator>> Try(const Places& places, Duration connect_timeout,
                                                      const Trace& trace, Failed& failed) {
  if (places.one()) {
    const Place& place = places.places[0];
    co_return co_await TryPortAndLeader(place.host, place.ports[0], places.job, connect_timeout,
                                        kAnswerTimeout, trace, failed);
  }
  std::vector<std::string> errors;
  bool resolved = false;
  for (const Place& place : places.places) {
    const absl::StatusOr<FoundCoordinator> found =
        co_await TryHost(place, places.job, connect_timeout, trace, failed);
    if (found.ok()) co_return found;
    errors.emplace_back(found.status().message());
    resolved |= !failed.unresolved;
  }
  failed.unresolved = !resolved;
  co_return absl::UnavailableError(absl::StrJoin(errors, "; "));
}

}  // namespace

asio::awaitable<absl::StatusOr<FoundCoordinator>> FindCoordinator(
    std::string host, int port, FindLimits limits, std::function<void(absl::string_view)> tell) {
  const std::string where = ToString(Endpoint{host, port});
  std::vector<int> ports = {port};
  ports.insert(ports.end(), limits.more_ports.begin(), limits.more_ports.end());
  Places places = {.places = {{host, ports}}, .job = {limits.job, limits.or_any_job, limits.follows}};
  for (const std::string& other : limits.more_hosts) places.places.push_back({other, ports});
  for (const Endpoint& other : limits.more_endpoints) places.places.push_back({other.host, {other.port}});
  const TimePoint end = std::chrono::steady_clock::now() + limits.total;
  Duration pause = kFirstPause, connect_timeout = kFirstConnectTimeout;
  std::string told;
  int hang_ups = 0;
  for (;;) {
    absl::StatusOr<FoundCoordinator> found = absl::UnavailableError(NoAnswer(where));
    const Duration left = end - std::chrono::steady_clock::now();
    Failed failed;
    auto result = co_await (Try(places, connect_timeout, limits.trace, failed) ||
                            Sleep(std::max(left, Duration(milliseconds(1)))));
    const bool in_time = result.index() == 0;
    if (in_time) found = std::get<0>(std::move(result));
    if (failed.timed_out) connect_timeout *= 2;
    if (!in_time && failed.unresolved) {
      found = absl::UnavailableError(absl::StrCat(
          host,
          " does not resolve (the name server has not answered): check /etc/resolv.conf, or give an address "
          "in --rdzv-endpoint=",
          where));
    }
    const bool again = failed.hung_up && ++hang_ups < kMaxHangUps;
    if (found.ok() || (!absl::IsUnavailable(found.status()) && !again)) co_return found;
    if (failed.refused && limits.refusal_is_final) co_return found;
    if (failed.refused && limits.on_refused) limits.on_refused();
    if (failed.unresolved && limits.unresolved_is_final) co_return found;
    const Duration rest = end - std::chrono::steady_clock::now();
    if (rest <= Duration::zero()) {
      co_return absl::UnavailableError(absl::StrCat(found.status().message(), " (tried for ",
                                                    InSeconds(limits.total),
                                                    limits.advice.empty() ? "" : "; ", limits.advice, ")"));
    }
    // The first failures are not reported, because this node may start shortly before the coordinator.
    if (pause >= milliseconds(500) && told != found.status().message()) {
      told = std::string(found.status().message());
      tell(absl::StrCat("waiting for the coordinator, ", rest / seconds(1), " s left: ", told));
    }
    co_await Sleep(std::min(pause, rest));
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace ddprun
