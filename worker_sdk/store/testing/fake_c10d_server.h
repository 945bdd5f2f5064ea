// A c10d store for tests, with the requests that C10dStore uses. tests/train runs C10dStore against ddprun's own store.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/event.h"
#include "os/descriptor.h"

namespace ddprun {

// Listens on a free port of 127.0.0.1, and serves any number of connections.
//   Threads: any.
class FakeC10dServer {
 public:
  FakeC10dServer();
  ~FakeC10dServer();

  int port() const { return port_; }
  int connections() const { return connections_; }  // so far
  // Closes all connections.
  void Hangup();
  std::string ValueOf(const std::string& key);

  // Set these before the first connection.
  std::string echo;        // sent instead of the echo of PING, if not empty
  std::string wait_reply;  // sent in reply to WAIT, if not empty
  Event* waits = nullptr;  // set when a WAIT for a key that is missing has arrived, if it is not null

 private:
  void Serve(int fd);
  bool Request(int fd);
  void Set(const std::string& key, const std::string& value);
  void Wait(int fd, const std::string& key);

  const UniqueFd listener_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::mutex mu_;  // guards the members below
  std::map<std::string, std::string> values_;
  std::map<int, std::string> waiting_;  // connection -> key
  std::set<int> open_;                  // connections
  std::vector<std::thread> threads_;    // one for each connection
  std::thread acceptor_;
};

}  // namespace ddprun
