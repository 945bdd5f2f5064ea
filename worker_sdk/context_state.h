// What is behind a Context, for the parts of the SDK that are not public.
#pragma once

#include <memory>

#include "base/worker_env.h"
#include "ddprun/context.h"
#include "worker_sdk/agent_channel.h"
#include "worker_sdk/recover/state_history.h"
#include "worker_sdk/reporter.h"
#include "worker_sdk/store/store.h"

namespace ddprun::internal {

struct ContextState {
  explicit ContextState(WorkerEnv environment);
  ~ContextState();
  static ContextState& Of(Context& context) { return *context.state_; }

  const WorkerEnv env;
  // The worker store, with this round's prefix for all keys. Connects on first use. An attempt to connect times out
  // after 60 s.
  //   Threads: any.
  const std::unique_ptr<Store> store;
  AgentChannel agent;
  Reporter reporter;
  int num_communicators = 0;  // calls of Connect
  StateHistory history;
};

}  // namespace ddprun::internal
