#include "net/http_client.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/string_body.hpp"
#include "boost/beast/http/write.hpp"

namespace ddprun {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

absl::Status ToStatus(const error_code& error) {
  // Beast reports malformed and incomplete responses in its HTTP error category.
  if (error.category() == http::make_error_code(http::error::bad_version).category() &&
      error != http::error::end_of_stream) {
    return absl::InvalidArgumentError(error.message());
  }
  return absl::UnavailableError(error.message());
}

}  // namespace

asio::awaitable<absl::StatusOr<HttpResponse>> HttpGet(asio::ip::tcp::socket& socket,
                                                      const HttpRequest& request) {
  http::request<http::empty_body> get(http::verb::get, request.path, 11);
  get.set(http::field::host, request.host);
  get.set(http::field::connection, "close");
  const auto [write_error, written] = co_await http::async_write(socket, get, kAwait);
  if (write_error) co_return ToStatus(write_error);

  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(request.max_body_bytes);
  const auto [header_error, header_bytes] = co_await http::async_read_header(socket, buffer, parser, kAwait);
  if (header_error) co_return ToStatus(header_error);

  HttpResponse response{.status = static_cast<int>(parser.get().result_int()),
                        .server = std::string(parser.get()[http::field::server])};
  if (request.server.empty() || response.server == request.server) {
    const auto [body_error, body_bytes] = co_await http::async_read(socket, buffer, parser, kAwait);
    if (body_error) co_return ToStatus(body_error);
    response.body = std::move(parser.get().body());
  }
  co_return response;
}

std::string QueryEscaped(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_') {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "%", absl::BytesToHexString(std::string(1, c)));
    }
  }
  return out;
}

}  // namespace ddprun
