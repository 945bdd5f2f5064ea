#include "ddprun/context.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/worker_message.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/awaited_operation.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/context_state.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/store/c10d_store.h"
#include "worker_sdk/store/tcp_dial.h"
#include "worker_sdk/survivor/round_connections.h"
#include "worker_sdk/survivor/survivor.h"

namespace ddprun {
namespace {

constexpr Duration kStoreConnectTimeout = seconds(60);

// The part of the round's store that belongs to one communicator.
class CommunicatorStore : public Store {
 public:
  CommunicatorStore(Store* store, int number) : store_(store), prefix_(StrCat("comm/", number, "/")) {}
  Status Set(std::string_view key, std::string_view value) override {
    return store_->Set(StrCat(prefix_, key), value);
  }
  StatusOr<std::string> Get(std::string_view key, Duration timeout) override {
    return store_->Get(StrCat(prefix_, key), timeout);
  }

 private:
  Store* const store_;
  const std::string prefix_;
};

std::unique_ptr<Store> MakeStore(const WorkerEnv& env) {
  return std::make_unique<C10dStore>(env.master_addr, env.master_port,
                                     StrCat("ddprun/", env.round.value(), "/"), kStoreConnectTimeout);
}

}  // namespace

internal::ContextState::ContextState(WorkerEnv environment)
    : env(std::move(environment)),
      connections(std::make_shared<RoundConnections>(MakeStore(env))),
      agent(env.agent_socket, {.fd = OperationPageFd(), .packet = {env.local_rank}}),
      reporter(env, &agent) {}
internal::ContextState::~ContextState() = default;

void internal::ContextState::BeginRound(const RoundOffer& offer) {
  env.round = offer.round;
  env.rank = offer.rank;
  env.group_rank = offer.group_rank;
  env.world_size = offer.world_size;
  env.group_world_size = offer.group_world_size;
  env.role_rank = offer.role_rank;
  env.role_world_size = offer.role_world_size;
  env.restart_count = offer.restart_count;
  env.master_addr = offer.master_addr;
  env.master_port = offer.master_port;
  env.node_addr = offer.node_addr;
  env.lease = offer.lease;
  connections = std::make_shared<RoundConnections>(MakeStore(env));
  num_communicators = 0;
  reporter.BeginRound();
}

StatusOr<Context> Context::FromEnvironment() {
  std::string error;
  std::optional<WorkerEnv> env = WorkerEnvFromProcess(&error);
  if (!env) return InvalidArgumentError(error);
  if (!env->agent_store && env->world_size > 1) {
    return FailedPreconditionError(
        "TORCHELASTIC_USE_AGENT_STORE=False: no agent hosts the store at MASTER_ADDR and MASTER_PORT, and "
        "this worker cannot host one; start the job without TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  }
  return Context(std::make_unique<internal::ContextState>(*std::move(env)));
}

Context::Context(std::unique_ptr<internal::ContextState> state) : state_(std::move(state)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

int Context::rank() const { return static_cast<int>(state_->env.rank.value()); }
int Context::world_size() const { return state_->env.world_size; }
int Context::local_rank() const { return static_cast<int>(state_->env.local_rank.value()); }
int Context::local_world_size() const { return state_->env.local_world_size; }
int Context::node_rank() const { return static_cast<int>(state_->env.group_rank.value()); }
int Context::num_nodes() const { return state_->env.group_world_size; }
int64_t Context::round() const { return state_->env.round.value(); }
int Context::restart_count() const { return state_->env.restart_count; }
const std::string& Context::run_id() const { return state_->env.run_id; }

StatusOr<Communicator> Context::Connect(const ConnectOptions& connect) {
  if (connect.device.type != DeviceType::kHost && connect.device.type != DeviceType::kCuda) {
    return InvalidArgumentError(
        StrCat("ConnectOptions::device has the unknown type ", static_cast<int>(connect.device.type)));
  }
  const WorkerEnv& env = state_->env;
  CommunicatorStore store(&state_->store(), state_->num_communicators++);  // even if this call fails
  const std::shared_ptr<Fabric> fabric = state_->connections->NewFabric();
  HostCommunicatorOptions options{
      .rank = env.rank,
      .world_size = env.world_size,
      .local_rank = env.local_rank,
      .local_world_size = env.local_world_size,
      .group_rank = env.group_rank,
      .group_world_size = env.group_world_size,
      .round = env.round,
      .run_id = env.run_id,
      .setup_timeout = connect.setup_timeout,
      .timeout = connect.timeout,
  };
  if (env.lease > Duration::zero()) options.silence_limit = env.lease;
  if (env.group_world_size > 1 && !env.node_addr.empty()) {
    options.address = env.node_addr;
  } else if (env.group_world_size > 1) {
    // Launchers other than ddprun do not set DDPRUN_NODE_ADDR.
    const TimePoint deadline = DeadlineAfter(connect.setup_timeout);
    DDPRUN_ASSIGN_OR_RETURN(options.address, LocalAddressTowards(env.master_addr, deadline), "MASTER_ADDR");
  }
  const bool on_host = connect.device.type == DeviceType::kHost;
  const StatusOr<NcclDevice> device =
      on_host ? StatusOr<NcclDevice>(UnimplementedError("no GPU was requested"))
              : OpenNcclDevice(connect.device, static_cast<int>(env.local_rank.value()));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> host, CreateHostGroup(options, &store, fabric));
  if (on_host && state_->wrap_group_for_test) {
    return Communicator(state_->wrap_group_for_test(std::move(host)));
  }
  if (on_host) return Communicator(std::move(host));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, CreateNcclGroup(std::move(host), device));
  return Communicator(std::move(group));
}

void Context::Survive() {
  internal::ContextState* const state = state_.get();
  if (state->survivor || state->env.agent_socket.empty()) return;
  state->reporter.ReceiveElsewhere();
  state->survivor.emplace(
      &state->agent, state->env,
      SurvivorHooks{.end_round = [state](const Status& why) { state->connections->End(why); },
                    .on_request = [state](const AgentRequest& request) { state->reporter.Deliver(request); },
                    .left = [state](Round round) { state->history.Leave(round.value()); },
                    .begin = [state](const RoundOffer& offer) { state->BeginRound(offer); }});
}

bool Context::MayContinue(const Status& why) const {
  return state_->survivor && state_->survivor->WhyNot(why).ok();
}

StatusOr<Communicator> Context::NextRound(const Status& why, const ConnectOptions& options) {
  if (!state_->survivor) {
    return FailedPreconditionError(
        "next round: this process does not survive its round: Survive() was not called, or no agent has "
        "started it");
  }
  DDPRUN_RETURN_IF_ERROR(state_->survivor->Leave(why), "next round");
  state_->connections->Retire(why);  // the round has ended: its error is not this one
  DDPRUN_RETURN_IF_ERROR(state_->survivor->AwaitRound(), "next round");
  return Connect(options);
}

void Context::Report(int64_t step, Phase phase, std::string_view text) {
  static_assert(static_cast<int>(Phase::kStarting) == static_cast<int>(WorkerPhase::kStarting) &&
                static_cast<int>(Phase::kFinishing) == static_cast<int>(WorkerPhase::kFinishing));
  state_->reporter.Report(step, static_cast<WorkerPhase>(phase), text);
}

bool Context::snapshot_requested() const { return state_->reporter.snapshot_requested(); }

std::optional<StopNotice> Context::stop_notice() const {
  const std::optional<WorkerStop>& stop = state_->reporter.stop();
  return stop ? std::optional(StopNotice{stop->by, stop->reason}) : std::nullopt;
}

void Context::ReportSnapshot(int64_t step) { state_->reporter.ReportSnapshot(step); }

}  // namespace ddprun
