// Opens the part of a job with a register that this process has, as the configuration says.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/registered_job.h"

namespace ddprun {

// All of them: `address` is that of this node for other nodes; `config` and `log` must outlive the result.
//   Errors: those of RegisteredJob::Open and OpenJobRegister.

// A job on etcd. REQUIRES: Backend::kEtcd.
absl::StatusOr<std::unique_ptr<RegisteredJob>> OpenOnEtcd(boost::asio::io_context& io,
                                                          const LaunchConfig& config, const AgentLog& log,
                                                          const std::string& address);

// A job with voters, for a process that listens at the endpoint, or at the first of these endpoints that is free.
//   endpoints: indices of LaunchConfig::endpoints, if there are several of them; otherwise empty.
absl::StatusOr<std::unique_ptr<RegisteredJob>> OpenAtEndpoint(boost::asio::io_context& io,
                                                              const LaunchConfig& config, const AgentLog& log,
                                                              const std::string& address,
                                                              const std::vector<size_t>& endpoints);

// A job with voters, for a process that listens elsewhere.
absl::StatusOr<std::unique_ptr<RegisteredJob>> OpenElsewhere(boost::asio::io_context& io,
                                                             const LaunchConfig& config, const AgentLog& log,
                                                             const std::string& address);

// Returns the indices of the LaunchConfig::endpoints that name this machine. Blocks while it resolves names.
std::vector<size_t> EndpointsHere(const LaunchConfig& config);

}  // namespace ddprun
