// The observers that the configuration enables for an agent.
#pragma once

#include <memory>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

class Observers {
 public:
  // `io` is the agent's event loop. `io`, `config` and `log` must outlive this object. If the port of the
  // health check cannot be opened, the error is logged and the job runs without a health check.
  Observers(boost::asio::io_context& io, const LaunchConfig& config, const AgentLog& log);

  std::vector<AgentObserver*> All() const;

 private:
  std::vector<std::unique_ptr<AgentObserver>> observers_;
};

}  // namespace ddprun
