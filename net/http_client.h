// An HTTP/1.1 GET request as an Asio coroutine.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

// Returns `text` as it is written for a value in the query of a path: "my%20job".
std::string QueryEscaped(absl::string_view text);

struct HttpRequest {
  std::string host;  // for the Host header
  std::string path;
  // The body is read only if the Server header of the response has this value. Empty means any value.
  std::string server = {};
  size_t max_body_bytes = 64 << 10;
};

struct HttpResponse {
  int status = 0;
  std::string server = {};  // the Server header
  std::string body = {};
};

// Sends `request` on a connected socket and reads the response. There is no deadline; the caller may cancel
// the coroutine. The caller must not use `socket` afterwards. Both arguments must outlive the coroutine.
//   Errors: kUnavailable: the peer closed the connection before it sent a byte, or the connection failed;
//           kInvalidArgument: the response is incomplete or is not HTTP, or its body exceeds max_body_bytes.
boost::asio::awaitable<absl::StatusOr<HttpResponse>> HttpGet(boost::asio::ip::tcp::socket& socket,
                                                             const HttpRequest& request);

}  // namespace ddprun
