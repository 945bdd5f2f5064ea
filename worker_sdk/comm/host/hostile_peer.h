// A peer that is not part of the round, for tests.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "os/descriptor.h"
#include "worker_sdk/comm/host/options.h"

namespace ddprun {

// Connects to each listening socket of this process as soon as the socket exists, and sends what no rank may accept: bytes
// that are no greeting, greetings of another version, round or run, of ranks that are not expected, and without the token.
// The connections stay open for a while. A thread does so until the object is destroyed.
//   Threads: one caller.
class HostilePeer {
 public:
  // `options`: of this process's rank, for greetings that are almost right.
  explicit HostilePeer(const HostCommunicatorOptions& options);
  ~HostilePeer();
  HostilePeer(const HostilePeer&) = delete;
  HostilePeer& operator=(const HostilePeer&) = delete;

  // Returns once a socket has been attacked.
  void AwaitFirst();
  // Ends the thread and closes the connections.
  void Stop();
  // After Stop: how many connections were made, and whether a listener has sent anything on one of them.
  [[nodiscard]] size_t num_connections() const { return num_connections_; }
  [[nodiscard]] bool was_answered() const { return was_answered_; }

 private:
  void Run();
  // Sends each text on a connection to `address`.
  void Attack(const sockaddr* address, socklen_t size);
  void AttackTcp(int port);
  void AttackUnix(const std::string& name);
  void CloseFirst();

  const std::vector<std::string> texts_;  // what is sent, each on a connection of its own
  const UniqueFd stop_, first_;           // eventfds
  // Used only by thread_ until that has ended.
  std::deque<UniqueFd> connections_;  // the last ones
  size_t num_connections_ = 0;
  bool was_answered_ = false;
  std::thread thread_;
};

}  // namespace ddprun
