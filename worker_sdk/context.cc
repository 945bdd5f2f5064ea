#include "worker_sdk/context.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/round_store.h"

namespace ddprun {
namespace {

constexpr Duration kStoreConnectTimeout = seconds(60);

// The part of the round's store that belongs to one communicator.
class CommunicatorStore : public Store {
 public:
  CommunicatorStore(Store* store, int number) : store_(store), prefix_(absl::StrCat("comm/", number, "/")) {}
  absl::Status Set(absl::string_view key, absl::string_view value) override {
    return store_->Set(absl::StrCat(prefix_, key), value);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) override {
    return store_->Get(absl::StrCat(prefix_, key), timeout);
  }

 private:
  Store* const store_;
  const std::string prefix_;
};

}  // namespace

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int rc = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found); rc != 0) {
    return absl::UnavailableError(absl::StrCat("MASTER_ADDR ", host, ": ", gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    // Connecting a datagram socket sends nothing; it selects the route and thereby the source address.
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage local{};
    socklen_t len = sizeof(local);
    char name[NI_MAXHOST];
    const bool routed = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &len) == 0 &&
                        getnameinfo(reinterpret_cast<sockaddr*>(&local), len, name, sizeof(name), nullptr, 0,
                                    NI_NUMERICHOST) == 0;
    if (fd >= 0) close(fd);
    if (routed) return std::string(name);
  }
  return absl::UnavailableError(absl::StrCat("MASTER_ADDR ", host, ": no route to host"));
}

absl::StatusOr<std::unique_ptr<Context>> Context::FromEnvironment() {
  ASSIGN_OR_RETURN(WorkerEnv env, WorkerEnvFromProcess());
  if (!env.agent_store && env.world_size > 1) {
    return absl::FailedPreconditionError(
        "TORCHELASTIC_USE_AGENT_STORE=False: no agent hosts the store at MASTER_ADDR and MASTER_PORT, and "
        "this worker cannot host one; start the job without TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  }
  return std::make_unique<Context>(std::move(env));
}

Context::Context(WorkerEnv env)
    : env_(std::move(env)),
      store_(std::make_unique<RoundStore>(env_.master_addr, env_.master_port,
                                          absl::StrCat("ddprun/", env_.round.value(), "/"),
                                          kStoreConnectTimeout)) {}

Context::~Context() = default;

absl::StatusOr<std::unique_ptr<Communicator>> Context::Connect(Duration timeout) {
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
    // A launcher other than ddprun does not set node_addr.
    ASSIGN_OR_RETURN(options.address, LocalAddressTowards(env_.master_addr, env_.master_port));
  }
  CommunicatorStore store(store_.get(), num_communicators_++);
  return CreateHostCommunicator(options, &store);
}

}  // namespace ddprun
