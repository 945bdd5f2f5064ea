// The entry point for a training program: a worker's ranks, store and communicators in a round.
//
//   DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Context> context, Context::FromEnvironment());
//   DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm, context->Connect());
#pragma once

#include <memory>
#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

//   Threads: store() may be used from any thread, Connect() by one caller at a time. All other members are
//            constant.
class Context {
 public:
  // Reads the environment; opens no connection. If the launcher's variables are missing, the world size is 1.
  //   Errors: kInvalidArgument: an invalid variable, named in the message;
  //           kFailedPrecondition: the environment requires rank 0 to host the store.
  static StatusOr<std::unique_ptr<Context>> FromEnvironment();
  explicit Context(WorkerEnv env);
  ~Context();

  const WorkerEnv& env() const { return env_; }
  Rank rank() const { return env_.rank; }
  int world_size() const { return env_.world_size; }
  Round round() const { return env_.round; }
  int restart_count() const { return env_.restart_count; }
  bool is_first_rank() const { return env_.rank == Rank(0); }

  // The worker store, with this round's prefix for all keys. Connects on first use. An attempt to connect
  // times out after 60 s.
  Store* store() { return store_.get(); }

  // Creates a communicator with backend `host` for all ranks of the round, and returns once all ranks are
  // connected. Each call creates a new communicator; all ranks must make the same number of calls.
  //   Errors: those of CreateHostCommunicator.
  StatusOr<std::unique_ptr<Communicator>> Connect(Duration timeout = seconds(60));

 private:
  WorkerEnv env_;
  std::unique_ptr<Store> store_;
  int num_communicators_ = 0;
};

}  // namespace ddprun
