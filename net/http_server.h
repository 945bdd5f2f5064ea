// Answers one HTTP/1 request on a connection, then closes it.
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

// The parts of a request target: "/events?after=7" has the path "/events" and the query "after=7".
struct HttpTarget {
  absl::string_view path;
  absl::string_view query;
  bool is_delete = false;  // the method is DELETE; otherwise GET or HEAD
};
// The decoded value of `name` in `query`; empty if absent.
std::string QueryValue(absl::string_view query, absl::string_view name);

using HttpHandler = std::function<HttpReply(const HttpTarget& target)>;

struct HttpLimits {
  Duration request_deadline = seconds(10);  // from ServeHttp to the end of the request header
  Duration reply_deadline = seconds(10);    // until the peer has read the reply and closed
  uint32_t max_header_bytes = 8 << 10;
  bool allow_delete = false;
};

// Serves GET and HEAD, and DELETE if allowed. Replies 405 to other methods, 400 to malformed requests, 413 to
// a request with a body, 431 to an oversized header. Closes a connection that misses a deadline.
//   Threads: `handler` and `done` run on the io_context of `socket`; `done` runs once, when the connection
//            closes.
//   Owns:    `socket`; `handler` is borrowed and must outlive the io_context.
void ServeHttp(boost::asio::ip::tcp::socket socket, const HttpHandler& handler, const HttpLimits& limits = {},
               std::function<void()> done = {});

}  // namespace ddprun
