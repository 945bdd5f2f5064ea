#include "net/http_server.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"

namespace ddprun {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

HttpReply ErrorReply(http::status status) {
  return {.status = static_cast<int>(status), .body = std::string(http::obsolete_reason(status)) + "\n"};
}

// Returns the HTTP status with which to reply to a request that could not be read, or nullopt if the
// connection should be closed without a reply.
std::optional<http::status> StatusOf(const boost::system::error_code& ec) {
  if (ec == http::error::header_limit) return http::status::request_header_fields_too_large;
  if (ec == http::error::body_limit) return http::status::payload_too_large;
  if (ec == http::error::end_of_stream || ec == http::error::partial_message) return std::nullopt;
  if (ec.category() == http::make_error_code(http::error::bad_method).category())
    return http::status::bad_request;
  return std::nullopt;
}

asio::awaitable<void> Serve(asio::ip::tcp::socket socket, const HttpHandler& handler, HttpLimits limits) {
  beast::tcp_stream stream(std::move(socket));
  beast::flat_buffer buffer(limits.max_header_bytes + 1024);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(limits.max_header_bytes);
  parser.body_limit(0);

  stream.expires_after(limits.request_deadline);
  const auto [read_error, read] = co_await http::async_read(stream, buffer, parser, kAwait);
  const auto& request = parser.get();
  const bool is_delete = request.method() == http::verb::delete_;
  HttpReply reply;
  if (read_error) {
    const auto status = StatusOf(read_error);
    if (!status) co_return;
    reply = ErrorReply(*status);
  } else if (request.method() != http::verb::get && request.method() != http::verb::head &&
             !(is_delete && limits.allow_delete)) {
    reply = ErrorReply(http::status::method_not_allowed);
  } else {
    const absl::string_view target(request.target().data(), request.target().size());
    const size_t end = std::min(target.find('?'), target.size());
    reply = handler({target.substr(0, end), target.substr(std::min(end + 1, target.size())), is_delete});
  }

  http::response<http::string_body> response(static_cast<http::status>(reply.status), 11);
  response.set(http::field::server, "ddprun");  // ddpctl recognizes the coordinator by this header
  response.set(http::field::content_type, reply.content_type);
  response.set(http::field::cache_control, "no-store");
  if (response.result() == http::status::method_not_allowed) {
    response.set(http::field::allow, limits.allow_delete ? "GET, HEAD, DELETE" : "GET, HEAD");
  }
  response.keep_alive(false);
  response.content_length(reply.body.size());
  if (read_error || request.method() != http::verb::head) response.body() = std::move(reply.body);

  stream.expires_after(limits.reply_deadline);
  const auto [write_error, written] = co_await http::async_write(stream, response, kAwait);
  if (write_error) co_return;
  // Wait until the peer disconnects. If the socket were closed earlier, the connection could be reset, and
  // the peer could lose data that it has not read.
  beast::error_code ec;
  stream.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  std::array<char, 1024> rest;
  while (true) {
    const auto [rest_error, n] = co_await stream.async_read_some(asio::buffer(rest), kAwait);
    if (rest_error) co_return;
  }
}

// Decodes "a%2Fb+c" to "a/b c", for example. Malformed escapes remain unchanged.
std::string Decoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    if (text[i] == '+') {
      out.push_back(' ');
    } else if (text[i] == '%' && i + 2 < text.size() &&
               std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
                   text.data() + i + 3) {
      out.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace

std::string QueryValue(absl::string_view query, absl::string_view name) {
  for (const absl::string_view part : absl::StrSplit(query, '&')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (field.first == name) return Decoded(field.second);
  }
  return "";
}

void ServeHttp(asio::ip::tcp::socket socket, const HttpHandler& handler, const HttpLimits& limits,
               std::function<void()> done) {
  const auto executor = socket.get_executor();
  asio::co_spawn(executor, Serve(std::move(socket), handler, limits),
                 [done = std::move(done)](std::exception_ptr error) {
                   if (error) std::rethrow_exception(error);
                   if (done) done();
                 });
}

}  // namespace ddprun
