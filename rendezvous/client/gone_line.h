// The connection on which a warden reports that the agent and all workers of its node have exited.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

// Returns the HTTP request that carries the report. Source: docs/protocol.md, "HTTP", DELETE /nodes.
std::string GoneMessage(const std::string& run_id, const std::string& node_id, const std::string& token);

// Connects to the coordinator at a numeric address. Invokes `done` exactly once, within 5 s and never from
// within this call. The connection stays idle until the warden writes the report; the coordinator does not
// close idle connections.
//   Errors: kUnavailable: the connection failed or was not established within 5 s, or `address` is not
//           numeric.
void OpenGoneLine(boost::asio::io_context& io, const std::string& address, int port,
                  std::function<void(absl::StatusOr<boost::asio::ip::tcp::socket>)> done);

}  // namespace ddprun
