// TORCHELASTIC_HEALTH_CHECK_PORT: a page over HTTP/1.1 that says whether this node is well, for whoever
// restarts nodes that are not. torchrun knows the variable and serves nothing.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_observer.h"
#include "launcher/observers/health_page.h"

namespace ddprun {

// Served from a thread of its own, so that there is an answer when the agent's loop hangs. It takes at most
// 64 connections at a time and hangs up on each after a few seconds; more wait for their turn.
//   Threads: all calls from that of `loop`.
class HealthCheck : public AgentObserver {
 public:
  // `loop`: the agent's; it is looked at each second. `port` 0: a free one. On all addresses.
  //   Errors: kFailedPrecondition: the port is taken, or needs privileges.
  static absl::StatusOr<std::unique_ptr<HealthCheck>> Open(boost::asio::io_context& loop, int port);
  ~HealthCheck() override;
  HealthCheck(const HealthCheck&) = delete;
  HealthCheck& operator=(const HealthCheck&) = delete;

  int port() const { return port_; }

  void OnState(AgentMachine::State state, Round round, int alive, TimePoint now) override;
  void OnWorkersGone(const std::vector<std::string>& unkillable, TimePoint now) override;

 private:
  class Server;
  // What both threads know.
  struct Shared {
    absl::Mutex mutex;
    Health health ABSL_GUARDED_BY(mutex);
  };

  HealthCheck(boost::asio::io_context& loop, std::unique_ptr<Shared> shared, std::unique_ptr<Server> server,
              int port);
  void Turn();

  const std::unique_ptr<Shared> shared_;
  const std::unique_ptr<Server> server_;
  const int port_;
  boost::asio::steady_timer timer_;
  std::thread thread_;
};

}  // namespace ddprun
