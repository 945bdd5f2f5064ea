#include "launcher/ctl/http_get.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "net/name_lookup.h"

namespace ddprun {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// The page of a job with 10,000 nodes has a few megabytes.
constexpr size_t kMaxPageBytes = 64 << 20;
constexpr char kRefused[] = "ddprun/refused";

using Parser = http::response_parser<http::string_body>;

absl::Status NoCoordinator(const Endpoint& endpoint, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("no coordinator answers at ", ToString(endpoint), ": ", why,
                                             "; --rdzv-endpoint is where the first node's ddprun listens"));
}

bool IsOurs(const Parser& parser) { return parser.get()[http::field::server] == "ddprun"; }

}  // namespace

absl::StatusOr<HttpAnswer> HttpGet(const Endpoint& endpoint, const std::string& path, Duration timeout) {
  boost::asio::io_context io(1);
  beast::tcp_stream stream(io);
  beast::error_code error;
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  const absl::StatusOr<std::vector<SocketAddress>> found =
      ResolveName(endpoint.host, endpoint.port, deadline);
  if (!found.ok()) {
    return absl::UnavailableError(
        absl::StrCat(found.status().message(), ": check --rdzv-endpoint=", ToString(endpoint)));
  }
  std::vector<boost::asio::ip::tcp::endpoint> addresses;
  for (const SocketAddress& address : *found) {
    boost::asio::ip::tcp::endpoint& peer = addresses.emplace_back();
    peer.resize(address.size);
    std::memcpy(peer.data(), &address.storage, address.size);
  }

  HttpAnswer answer;
  http::request<http::empty_body> request{http::verb::get, path, 11};
  request.set(http::field::host, endpoint.host);
  Parser parser;
  parser.body_limit(kMaxPageBytes);
  beast::flat_buffer buffer;
  stream.expires_at(deadline);
  // Asynchronous, because only such operations keep the stream's deadline.
  stream.async_connect(addresses, [&](beast::error_code e, const auto& peer) {
    if ((error = e)) return;
    answer.address = peer.address().to_string();
    http::async_write(stream, request, [&](beast::error_code e, size_t) {
      if ((error = e)) return;
      http::async_read_header(stream, buffer, parser, [&](beast::error_code e, size_t) {
        // Of somebody else's page nothing is read: it may be of any size.
        if ((error = e) || !IsOurs(parser)) return;
        http::async_read(stream, buffer, parser, [&](beast::error_code e, size_t) { error = e; });
      });
    });
  });
  io.run();
  if (error) {
    absl::Status status = NoCoordinator(endpoint, error.message());
    if (error == boost::asio::error::connection_refused) status.SetPayload(kRefused, absl::Cord());
    return status;
  }
  if (!IsOurs(parser)) return NoCoordinator(endpoint, "what listens there is another HTTP server");
  answer.status = parser.get().result_int();
  answer.body = std::move(parser.get().body());
  return answer;
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
