// Answers one HTTP/1 request for a page, then hangs up.
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

// The parts of a target: "/events?after=7" has the path "/events" and the query "after=7".
struct HttpTarget {
  absl::string_view path;
  absl::string_view query;
  bool is_delete = false;  // the method is DELETE, else GET or HEAD
};
// The value of `name` in a query, decoded; empty if it is not there.
std::string QueryValue(absl::string_view query, absl::string_view name);

using HttpHandler = std::function<HttpReply(const HttpTarget& target)>;

struct HttpLimits {
  Duration request_deadline = seconds(10);  // from the call to the end of the request's header
  Duration reply_deadline = seconds(10);    // until the peer has taken the reply and hung up
  uint32_t max_header_bytes = 8 << 10;
  bool allow_delete = false;
};

// GET and HEAD, and DELETE where it is allowed; 405 for other methods, 400 for what is no HTTP, 413 for a
// request with a body, 431 for a long header. A peer that misses a deadline is hung up on. The handler is
// called on the io_context of `socket`, which `handler` must outlive; `done` likewise, once, when the
// connection is over.
void ServeHttp(boost::asio::ip::tcp::socket socket, const HttpHandler& handler, const HttpLimits& limits = {},
               std::function<void()> done = {});

}  // namespace ddprun
