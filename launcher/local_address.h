// The address of this node that the user has given.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"

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

}  // namespace ddprun
