// Those who watch the agent, as the configuration asks for them.
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
  // `config`, `log` and `io`, the agent's loop, outlive this. A health check whose port is taken is said and
  // done without: whoever asks it sees that nobody answers, and a job that can train does.
  Observers(boost::asio::io_context& io, const LaunchConfig& config, const AgentLog& log);

  std::vector<AgentObserver*> All() const;

 private:
  std::vector<std::unique_ptr<AgentObserver>> observers_;
};

}  // namespace ddprun
