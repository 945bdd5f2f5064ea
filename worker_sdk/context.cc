#include "worker_sdk/context.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/store/c10d_store.h"
#include "worker_sdk/store/tcp_dial.h"

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

}  // namespace

StatusOr<std::unique_ptr<Context>> Context::FromEnvironment() {
  std::string error;
  std::optional<WorkerEnv> env = WorkerEnvFromProcess(&error);
  if (!env) return InvalidArgumentError(error);
  if (!env->agent_store && env->world_size > 1) {
    return FailedPreconditionError(
        "TORCHELASTIC_USE_AGENT_STORE=False: no agent hosts the store at MASTER_ADDR and MASTER_PORT, and "
        "this worker cannot host one; start the job without TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  }
  return std::make_unique<Context>(*std::move(env));
}

Context::Context(WorkerEnv env)
    : env_(std::move(env)),
      store_(std::make_unique<C10dStore>(env_.master_addr, env_.master_port,
                                         StrCat("ddprun/", env_.round.value(), "/"), kStoreConnectTimeout)) {}

Context::~Context() = default;

StatusOr<std::unique_ptr<Communicator>> Context::Connect(Duration timeout) {
  HostCommunicatorOptions options{
      .rank = env_.rank,
      .world_size = env_.world_size,
      .local_rank = env_.local_rank,
      .local_world_size = env_.local_world_size,
      .group_rank = env_.group_rank,
      .group_world_size = env_.group_world_size,
      .round = env_.round,
      .run_id = env_.run_id,
      .setup_timeout = timeout,
  };
  if (env_.lease > Duration::zero()) options.silence_limit = env_.lease;
  if (env_.group_world_size > 1 && !env_.node_addr.empty()) {
    options.address = env_.node_addr;
  } else if (env_.group_world_size > 1) {
    // Launchers other than ddprun do not set DDPRUN_NODE_ADDR.
    DDPRUN_ASSIGN_OR_RETURN(options.address,
                            LocalAddressTowards(env_.master_addr, std::chrono::steady_clock::now() + timeout),
                            "MASTER_ADDR");
  }
  CommunicatorStore store(store_.get(), num_communicators_++);
  return CreateHostCommunicator(options, &store);
}

}  // namespace ddprun
