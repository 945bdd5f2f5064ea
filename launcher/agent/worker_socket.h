// Where workers of the SDK report to: keeps the newest report of each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "boost/asio/io_context.hpp"
#include "proto/worker.pb.h"

namespace ddprun {

// An abstract unix socket (SOCK_SEQPACKET): it has no file, so nothing is left when the agent goes, however
// it goes.
//   Threads: that of `io`.
class WorkerSocket {
 public:
  // Errors: kResourceExhausted: no descriptor left.
  static absl::StatusOr<std::unique_ptr<WorkerSocket>> Open(boost::asio::io_context& io);
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // For DDPRUN_AGENT_SOCKET.
  const std::string& name() const;
  // The last report of this worker in `round`, if it sent one.
  std::optional<proto::WorkerReport> Last(Round round, LocalRank local_rank) const;

 private:
  struct State;
  explicit WorkerSocket(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;  // with its pending operations
};

}  // namespace ddprun
