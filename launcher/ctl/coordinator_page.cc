#include "launcher/ctl/coordinator_page.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/connect.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/experimental/awaitable_operators.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/this_coro.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "net/http_client.h"
#include "net/name_lookup.h"
#include "net/tcp.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace asio::experimental::awaitable_operators;  // NOLINT: operator|| on awaitables

// The page of a job with 10,000 nodes is a few megabytes in size.
constexpr size_t kMaxPageBytes = 64 << 20;
constexpr char kRefused[] = "ddprun/refused";
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

absl::Status NoCoordinator(const Endpoint& endpoint, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("no coordinator answers at ", ToString(endpoint), ": ", why,
                   "; --rdzv-endpoint must be the address of the coordinator's node"));
}

asio::awaitable<absl::StatusOr<CoordinatorPage>> Get(const Endpoint& endpoint,
                                                     const std::vector<tcp::endpoint>& addresses,
                                                     const HttpRequest& request) {
  tcp::socket socket(co_await asio::this_coro::executor);
  const auto [error, peer] = co_await asio::async_connect(socket, addresses, kAwait);
  if (error) {
    absl::Status status = NoCoordinator(endpoint, error.message());
    if (error == asio::error::connection_refused) status.SetPayload(kRefused, absl::Cord());
    co_return status;
  }
  absl::StatusOr<HttpResponse> response = co_await HttpGet(socket, request);
  if (!response.ok()) co_return NoCoordinator(endpoint, std::string(response.status().message()));
  if (response->server != request.server)
    co_return NoCoordinator(endpoint, "another HTTP server listens on this port");
  co_return CoordinatorPage{response->status, std::move(response->body), peer.address().to_string()};
}

asio::awaitable<void> SleepUntil(TimePoint deadline) {
  asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
  co_await timer.async_wait(kAwait);
}

}  // namespace

absl::StatusOr<CoordinatorPage> GetCoordinatorPage(const Endpoint& endpoint, const std::string& path,
                                                   Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  const absl::StatusOr<std::vector<SocketAddress>> found =
      ResolveName(endpoint.host, endpoint.port, deadline);
  if (!found.ok()) {
    return absl::UnavailableError(
        absl::StrCat(found.status().message(), ": check --rdzv-endpoint=", ToString(endpoint)));
  }
  std::vector<tcp::endpoint> addresses;
  for (const SocketAddress& address : *found) addresses.push_back(ToEndpoint(address));

  absl::StatusOr<CoordinatorPage> page =
      NoCoordinator(endpoint, absl::StrCat("no answer within ", ToMillis(timeout), " ms"));
  const HttpRequest request{
      .host = endpoint.host, .path = path, .server = "ddprun", .max_body_bytes = kMaxPageBytes};
  asio::io_context io(1);
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        auto got = co_await (Get(endpoint, addresses, request) || SleepUntil(deadline));
        if (got.index() == 0) page = std::get<0>(std::move(got));
      },
      asio::detached);
  io.run();
  return page;
}

bool IsRefused(const absl::Status& status) { return status.GetPayload(kRefused).has_value(); }

std::string QueryEncoded(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<uint8_t>(c));
    }
  }
  return out;
}

}  // namespace ddprun
