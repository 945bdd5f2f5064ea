#include "launcher/find_job.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "boost/asio/async_result.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "launcher/agent/background_task.h"
#include "launcher/host_addresses.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// Time limit for a question to the scheduler.
constexpr Duration kResolveLimit = seconds(10);
// Time for which the coordinator of a scheduler's job is looked for by the name of its host alone. It spares the scheduler's
// controller a request from every node.
constexpr Duration kNameLimit = seconds(3);

asio::awaitable<std::vector<std::string>> AddressesFromScheduler(asio::io_context& io,
                                                                 const LaunchConfig& config) {
  co_return co_await asio::async_initiate<decltype(asio::use_awaitable), void(std::vector<std::string>)>(
      [&io, &config](auto handler) {
        // std::function needs a copy.
        const auto done = std::make_shared<decltype(handler)>(std::move(handler));
        ComputeInBackground<std::vector<std::string>>(
            io, kResolveLimit,
            [scheduler = config.scheduler, host = config.endpoint.host] {
              return AddressesInScheduler(scheduler, host);
            },
            [done](std::optional<std::vector<std::string>> addresses) {
              (*done)(std::move(addresses).value_or(std::vector<std::string>()));
            });
      },
      asio::use_awaitable);
}

}  // namespace

asio::awaitable<absl::StatusOr<FoundCoordinator>> FindJob(asio::io_context& io, const LaunchConfig& config,
                                                          const AgentLog& log, std::function<bool()> ended) {
  const Endpoint& at = config.endpoint;
  // `limits` is a local variable, because GCC 12 would destroy a temporary in a call below twice.
  FindLimits limits;
  limits.total = config.rdzv.read_timeout;
  limits.advice = "--rdzv-conf=read_timeout=SECONDS changes the limit";
  limits.trace = [&log](absl::string_view text) { log.Detail(text); };
  const auto tell = [&log](absl::string_view text) { log.Say(text); };
  // An agent at the endpoint that does not coordinate the job knows which one does.
  if (config.has_voters()) limits.job = config.run_id;
  if (config.endpoints.size() > 1)
    limits.more_endpoints.assign(config.endpoints.begin() + 1, config.endpoints.end());
  if (config.candidate_ports.empty()) {
    // Among several endpoints, a process of --store-only is a witness, not the coordinator.
    limits.or_any_job = config.endpoints.size() <= 1;
    co_return co_await FindCoordinator(at.host, at.port, limits, tell);
  }

  limits.more_ports.assign(config.candidate_ports.begin() + 1, config.candidate_ports.end());
  limits.more_hosts = config.candidate_hosts;
  limits.job = config.run_id;
  FindLimits by_name = limits;
  by_name.total = std::min(limits.total, kNameLimit);
  by_name.unresolved_is_final = true;
  absl::StatusOr<FoundCoordinator> found =
      co_await FindCoordinator(at.host, at.port, by_name, [](absl::string_view) {});
  if (found.ok() || ended() || !absl::IsUnavailable(found.status())) co_return found;
  for (std::string& address : co_await AddressesFromScheduler(io, config)) {
    limits.more_hosts.push_back(std::move(address));
  }
  co_return co_await FindCoordinator(at.host, at.port, limits, tell);
}

}  // namespace ddprun
