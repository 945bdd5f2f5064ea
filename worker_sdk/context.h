// What a worker knows of its job: the way in for a training program.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Context> context, Context::FromEnvironment());
//   ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm, context->Connect());
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

// The numeric address of this machine from which packets go to `host`.
//   Errors: kUnavailable: `host` does not resolve, or nothing leads there.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

//   Threads: store() may be used from any thread; the rest is constant.
class Context {
 public:
  // Reads the environment; connects to nothing. A process that no launcher started is a world of one.
  //   Errors: kInvalidArgument naming the variable; kFailedPrecondition: rank 0 is meant to host the store.
  static absl::StatusOr<std::unique_ptr<Context>> FromEnvironment();
  explicit Context(WorkerEnv env);
  ~Context();

  const WorkerEnv& env() const { return env_; }
  Rank rank() const { return env_.rank; }
  int world_size() const { return env_.world_size; }
  Round round() const { return env_.round; }
  int restart_count() const { return env_.restart_count; }
  bool is_first_rank() const { return env_.rank == Rank(0); }

  // The worker store under this round's prefix. Connects at the first use, for at most its timeout.
  Store* store() { return store_.get(); }

  // Meets the other ranks: a communicator of backend `host` over all ranks of the round. Each call makes a
  // new one; all ranks call it equally often.
  //   Errors: CreateHostCommunicator's.
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(Duration timeout = seconds(60));

 private:
  WorkerEnv env_;
  std::unique_ptr<Store> store_;
  int num_communicators_ = 0;
};

}  // namespace ddprun
