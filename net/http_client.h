// One GET over HTTP/1.1, as an Asio coroutine.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

struct HttpRequest {
  std::string host;  // for the Host header
  std::string path;
  // The body is read only if the Server header has this value; empty: any value.
  std::string server = {};
  size_t max_body_bytes = 64 << 10;
};

struct HttpResponse {
  int status = 0;
  std::string server = {};  // the Server header
  std::string body = {};
};

// Sends `request` on a connected socket and reads the response. Has no deadline: the caller cancels the
// coroutine. `socket` cannot be used afterwards. Both arguments must outlive the coroutine.
//   Errors: kUnavailable: the peer closed the connection before it sent a byte, or the connection failed;
//           kInvalidArgument: the peer did not send a complete HTTP response, or its body is too large.
boost::asio::awaitable<absl::StatusOr<HttpResponse>> HttpGet(boost::asio::ip::tcp::socket& socket,
                                                             const HttpRequest& request);

}  // namespace ddprun
