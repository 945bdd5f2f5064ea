// One run of the launcher: finds or hosts the coordinator, runs the agent, ends both.
#pragma once

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/warden.h"

namespace ddprun {

// Keeps the signals that end a launcher until Launch or RunStoreOnly can act on them, so that none is lost or
// taken for the default. To be called first of all.
void HoldSignals();

// Returns the exit code: 0 if the job succeeded, else 1. docs/failure_model.md tells what ends a run.
int Launch(const LaunchConfig& config, const AgentLog& log, const std::string& host, WardenHandle warden);

// --store-only: a coordinator with its store and nothing else, until a signal comes or its parent ends. The
// first line on stdout is its port. Returns the exit code.
int RunStoreOnly(const StoreConfig& config, const AgentLog& log);

}  // namespace ddprun
