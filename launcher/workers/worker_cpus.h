// The processors of this node's workers, found without blocking the agent.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "base/worker_env.h"
#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Calls WorkerCpus on another thread, because NVIDIA's driver library may not respond, and then `done` on `io`. Says after
// 5 s that the library has not answered. Without --numa-binding, calls `done` at once, within this call.
//   Errors: those of WorkerCpus; kDeadlineExceeded: no answer within 60 s.
void FindWorkerCpus(boost::asio::io_context& io, const AgentLog& log, const LaunchConfig& config,
                    const EnvVars& base,
                    std::function<void(absl::StatusOr<std::vector<std::set<int>>>)> done);

}  // namespace ddprun
