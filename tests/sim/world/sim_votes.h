// Votes between simulated processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "proto/voters.pb.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/vote_client.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_tcp.h"
#include "tests/sim/world/sim_timer.h"

namespace ddprun::sim {

// The counterpart of GrpcVoteClient: one connection to each process, which is kept until it breaks. An address is "HOST:PORT", with
// the id of the simulated host and the port of the process's coordinator.
class SimVoteClient final : public VoteClient {
 public:
  // Observes the requests.
  using Observer = std::function<void(const VoteRequest& request)>;

  SimVoteClient(SimHost* host, SimTcp* tcp, SimTimer::InProcess in_process, Observer observe)
      : host_(*host), tcp_(*tcp), in_process_(std::move(in_process)), observe_(std::move(observe)) {}
  void Send(const std::string& address, const VoteRequest& request, Duration limit,
            std::function<void(absl::StatusOr<VoteReply>)> done) override;
  // The process has exited.
  void Stop();

 private:
  using Done = std::function<void(absl::StatusOr<VoteReply>)>;
  struct Channel {
    SimSocket socket;
    TimePoint heard = {};              // when the last reply was received
    std::map<uint64_t, Done> waiting;  // by the number of the request
  };

  std::shared_ptr<Channel> Connect(const std::string& address);
  void OnReply(Channel& channel, const std::string& bytes);
  // Ends a connection. Requests on it fail with `why`.
  void Drop(const std::string& address, const std::shared_ptr<Channel>& channel, const absl::Status& why);

  SimHost& host_;
  SimTcp& tcp_;
  const SimTimer::InProcess in_process_;
  const Observer observe_;
  std::map<std::string, std::shared_ptr<Channel>> channels_;  // by address
  uint64_t next_ = 1;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

// Answers the votes that a process receives.
class SimVoteServer {
 public:
  using Answer = std::function<absl::StatusOr<proto::VoteReply>(const proto::VoteRequest&)>;

  // `port`: of the process's coordinator.
  SimVoteServer(SimHost* host, SimTcp* tcp, int port, SimTimer::InProcess in_process, Answer answer);
  SimVoteServer(const SimVoteServer&) = delete;
  SimVoteServer& operator=(const SimVoteServer&) = delete;

  // The process has exited.
  void Stop();

 private:
  SimHost& host_;
  SimTcp& tcp_;
  const int port_;
  std::vector<SimSocket> sockets_;
};

}  // namespace ddprun::sim
