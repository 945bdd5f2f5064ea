// What is behind a Context, for the parts of the SDK that are not public.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/worker_env.h"
#include "base/worker_message.h"
#include "ddprun/context.h"
#include "worker_sdk/agent_channel.h"
#include "worker_sdk/recover/state_history.h"
#include "worker_sdk/reporter.h"
#include "worker_sdk/store/store.h"
#include "worker_sdk/survivor/round_connections.h"
#include "worker_sdk/survivor/survivor.h"

namespace ddprun::internal {

struct ContextState {
  explicit ContextState(WorkerEnv environment);
  ~ContextState();
  static ContextState& Of(Context& context) { return *context.state_; }

  // The worker store, with the round's prefix for all keys. Connects on first use. An attempt to connect times out
  // after 60 s.
  [[nodiscard]] Store& store() const { return connections->store(); }
  // Enters the round that the agent has offered.
  void BeginRound(const RoundOffer& offer);

  // The environment of the process, with this process's place in the round that began last.
  WorkerEnv env;
  std::shared_ptr<RoundConnections> connections;  // of that round
  int num_communicators = 0;                      // calls of Connect in that round
  AgentChannel agent;
  Reporter reporter;
  StateHistory history;
  // What Connect returns instead of a group of the host.
  std::function<std::shared_ptr<Group>(std::shared_ptr<Group>)> wrap_group_for_test;
  std::optional<Survivor> survivor;  // from Survive() on. The last member, because its thread uses the others
};

}  // namespace ddprun::internal
