// The line on which the warden of a node says that its agent and all its workers are gone.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

// What is written on it: docs/protocol.md, "HTTP", DELETE /nodes.
std::string GoneMessage(const std::string& run_id, const std::string& node_id, const std::string& token);

// Connects to the coordinator at a numeric address; `done` comes once, not from within, within 5 s. The
// connection stays silent until the message is written; the coordinator keeps it as long as it is open.
//   Errors: kUnavailable.
void OpenGoneLine(boost::asio::io_context& io, const std::string& address, int port,
                  std::function<void(absl::StatusOr<boost::asio::ip::tcp::socket>)> done);

}  // namespace ddprun
