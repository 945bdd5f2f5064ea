// Serves an HTTP/1.1 page with the health of this node on the port TORCHELASTIC_HEALTH_CHECK_PORT, for
// systems that restart unhealthy nodes. torchrun reads the variable, but does not serve a page.
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

// Serves the page from a separate thread, which responds even while the agent's event loop hangs. At most 64
// connections are open at a time, each for a few seconds. Further connections wait in the backlog.
//   Threads: all methods are called on the thread of `loop`.
class HealthCheck : public AgentObserver {
 public:
  // Listens on all addresses.
  //   loop: the agent's event loop, borrowed. A timer records once a second that the loop is running.
  //   port: 0 selects a free port.
  //   Errors: kFailedPrecondition: the port is in use or needs privileges.
  static absl::StatusOr<std::unique_ptr<HealthCheck>> Open(boost::asio::io_context& loop, int port);
  ~HealthCheck() override;
  HealthCheck(const HealthCheck&) = delete;
  HealthCheck& operator=(const HealthCheck&) = delete;

  int port() const { return port_; }

  void OnState(AgentMachine::State state, Round round, int alive, TimePoint now) override;
  void OnWorkersGone(const std::vector<std::string>& unkillable, TimePoint now) override;

 private:
  class Server;
  // State shared by both threads.
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
