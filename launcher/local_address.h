// The address of this node that the user has given.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "launcher/config/launch_config.h"

namespace ddprun {

struct LocalAddress {
  std::string name = {};     // a name or an address, as other nodes use it; empty: none was given
  std::string numeric = {};  // numeric address; empty: unknown
};

// Reads --local-addr, which is a name, an address or an interface of this node; empty: none was given. Calls `done` once, within
// this call or later.
//   Errors: kInvalidArgument: the value is unusable, so that workers of other nodes could not connect to this node.
void ReadLocalAddress(boost::asio::io_context& io, const std::string& given,
                      std::function<void(absl::StatusOr<LocalAddress>)> done);

// The name or address at which other nodes reach this node, which hosts the coordinator.
//   given: LocalAddress::name.
//   host:  that of the coordinator in a scheduler's job; empty: unknown.
std::string AddressOfHost(const LaunchConfig& config, const std::string& given, const std::string& host);

// The numeric address at which workers of other nodes reach the workers of this node.
//   own:    the numeric address of this node; empty: unknown.
//   name:   as other nodes use it.
//   agents: numeric addresses of other nodes.
std::string AddressForWorkers(const std::string& own, const std::string& name,
                              const std::vector<std::string>& agents);

}  // namespace ddprun
