#include "launcher/open_registered_job.h"

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "launcher/hosting.h"
#include "launcher/job_register.h"
#include "net/endpoint.h"

namespace ddprun {
namespace {

RegisteredJob::Parts PartsOf(const LaunchConfig& config, const AgentLog& log, const std::string& address) {
  RegisteredJob::Parts parts;
  parts.run_id = config.run_id;
  parts.lease = config.rdzv.lease;
  parts.address = address;
  parts.listen = ListenAddress(address);
  parts.record = config.record;
  parts.service = NameOfRegister(config);
  parts.log = &log;
  for (const Endpoint& endpoint : config.endpoints) parts.endpoints.push_back(ToString(endpoint));
  if (parts.endpoints.empty()) parts.endpoints = {ToString(config.endpoint)};
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegisteredJob>> OpenOnEtcd(boost::asio::io_context& io,
                                                          const LaunchConfig& config, const AgentLog& log,
                                                          const std::string& address) {
  RegisteredJob::Parts parts = PartsOf(config, log, address);
  ASSIGN_OR_RETURN(parts.charter_register, OpenJobRegister(io, config));
  return RegisteredJob::Open(io, std::move(parts));
}

absl::StatusOr<std::unique_ptr<RegisteredJob>> OpenAtEndpoint(boost::asio::io_context& io,
                                                              const LaunchConfig& config, const AgentLog& log,
                                                              const std::string& address,
                                                              const std::vector<size_t>& endpoints) {
  if (endpoints.empty()) {
    RegisteredJob::Parts parts = PartsOf(config, log, address);
    parts.listen = ListenAddress(config.endpoint.host);
    parts.ports = config.candidate_ports;
    if (parts.ports.empty()) parts.ports = {config.endpoint.port};
    parts.own_endpoint = 0;
    return RegisteredJob::Open(io, std::move(parts));
  }
  absl::StatusOr<std::unique_ptr<RegisteredJob>> job = absl::InternalError("no endpoint");
  for (const size_t i : endpoints) {
    RegisteredJob::Parts parts = PartsOf(config, log, address);
    parts.listen = ListenAddress(config.endpoints[i].host);
    parts.ports = {config.endpoints[i].port};
    if (config.local_addr.empty()) parts.address = config.endpoints[i].host;
    parts.own_endpoint = i;
    job = RegisteredJob::Open(io, std::move(parts));
    if (!absl::IsAlreadyExists(job.status())) break;
  }
  return job;
}

absl::StatusOr<std::unique_ptr<RegisteredJob>> OpenElsewhere(boost::asio::io_context& io,
                                                             const LaunchConfig& config, const AgentLog& log,
                                                             const std::string& address) {
  return RegisteredJob::Open(io, PartsOf(config, log, address));
}

std::vector<size_t> EndpointsHere(const LaunchConfig& config) {
  std::vector<size_t> here;
  for (size_t i = 0; i < config.endpoints.size(); ++i) {
    if (IsThisMachine(config.endpoints[i].host)) here.push_back(i);
  }
  return here;
}

}  // namespace ddprun
