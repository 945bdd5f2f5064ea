// The observers of an agent that the configuration enables.
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
  // `io` is the agent's loop. `io`, `config` and `log` must outlive this object. If the health check's port
  // cannot be opened, logs the error; the job then runs without a health check.
  Observers(boost::asio::io_context& io, const LaunchConfig& config, const AgentLog& log);

  std::vector<AgentObserver*> All() const;

 private:
  std::vector<std::unique_ptr<AgentObserver>> observers_;
};

}  // namespace ddprun
