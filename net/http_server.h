// Serves one HTTP/1 request per connection, then closes the connection.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
};

// The target and the method of a request. The target "/events?after=7" has the path "/events" and the query
// "after=7".
struct HttpTarget {
  absl::string_view path;
  absl::string_view query;
  bool is_delete = false;  // true if the method is DELETE, false if it is GET or HEAD
};
// Returns the decoded value of `name` in `query`, or "" if `name` is absent.
std::string QueryValue(absl::string_view query, absl::string_view name);

using HttpHandler = std::function<HttpReply(const HttpTarget& target)>;

struct HttpLimits {
  Duration request_deadline = seconds(10);  // from the call to ServeHttp until the request header is complete
  Duration reply_deadline = seconds(10);    // from the start of the reply until the peer has disconnected
  uint32_t max_header_bytes = 8 << 10;
  bool allow_delete = false;
};

// Serves GET and HEAD, and DELETE if limits.allow_delete is set. Replies 405 to other methods, 400 to
// malformed requests, 413 to requests with a body, and 431 to requests with an oversized header. Closes
// a connection that misses a deadline.
//   Threads: `handler` and `done` run on the io_context of `socket`; `done` runs once, when the connection
//            closes.
//   Owns:    `socket`. `handler` is borrowed and must outlive the io_context.
void ServeHttp(boost::asio::ip::tcp::socket socket, const HttpHandler& handler, const HttpLimits& limits = {},
               std::function<void()> done = {});

}  // namespace ddprun
