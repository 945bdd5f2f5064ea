#include "launcher/workers/worker_cpus.h"

#include <memory>
#include <optional>
#include <utility>

#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/background_task.h"
#include "launcher/config/driver_call.h"
#include "launcher/numa/binding.h"

namespace ddprun {

void FindWorkerCpus(boost::asio::io_context& io, const AgentLog& log, const LaunchConfig& config,
                    const EnvVars& base,
                    std::function<void(absl::StatusOr<std::vector<std::set<int>>>)> done) {
  if (!config.numa_binding) return done(WorkerCpus(config, base));
  const DriverLimits limits;
  const auto slow = std::make_shared<boost::asio::steady_timer>(io, limits.slow);
  slow->async_wait([&log, limits](const boost::system::error_code& error) {
    if (!error) log.Say(DriverHasNotAnswered(limits.slow));
  });
  using Cpus = absl::StatusOr<std::vector<std::set<int>>>;
  ComputeInBackground<Cpus>(
      io, limits.total,
      [config, base] {
        const DriverCall call;
        return WorkerCpus(config, base);
      },
      [slow, limits, done = std::move(done)](std::optional<Cpus> cpus) {
        slow->cancel();
        if (!cpus) return done(absl::DeadlineExceededError(DriverHasNotAnswered(limits.total)));
        done(*std::move(cpus));
      });
}

}  // namespace ddprun
