// The connection on which a node's warden reports that its agent and all its workers have exited.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

// Encodes the report. Source: docs/protocol.md, "HTTP", DELETE /nodes.
std::string GoneMessage(const std::string& run_id, const std::string& node_id, const std::string& token);

// Connects to the coordinator at a numeric address. Invokes `done` once, within 5 s, never from within this
// call. The connection stays idle until the report is written; the coordinator does not time it out.
//   Errors: kUnavailable: no connection within 5 s, or `address` is not numeric.
void OpenGoneLine(boost::asio::io_context& io, const std::string& address, int port,
                  std::function<void(absl::StatusOr<boost::asio::ip::tcp::socket>)> done);

}  // namespace ddprun
