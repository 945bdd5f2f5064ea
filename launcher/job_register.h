// Opens the register of a job as the configuration says.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "launcher/config/launch_config.h"
#include "rendezvous/charter/charter_register.h"

namespace ddprun {

// Reads the files that `config` names, and opens the register. Does not connect. May block while it reads files.
//   REQUIRES: Backend::kEtcd.
//   Errors:   kInvalidArgument: a file cannot be read or is empty.
absl::StatusOr<std::unique_ptr<CharterRegister>> OpenJobRegister(boost::asio::io_context& io,
                                                                 const LaunchConfig& config);

// What keeps the register, for people: "etcd at etcd1:2379, etcd2:2379".
std::string NameOfRegister(const LaunchConfig& config);

// The numeric address of this host towards the service of the register. Blocks while it resolves names; that of another
// interface, if no name resolves.
std::string AddressTowardsRegister(const LaunchConfig& config);

}  // namespace ddprun
