// Ports and servers that are not coordinators, for tests that use them as the endpoint of a job.
#pragma once

#include <string>
#include <thread>

namespace ddprun {

// A TCP port on 127.0.0.1 that is in use.
class TakenPort {
 public:
  // kRefuses: the port refuses connections. kSilent: the port accepts connections and sends nothing.
  enum class Kind { kRefuses, kSilent };
  explicit TakenPort(Kind kind);
  ~TakenPort();
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

  int port() const { return port_; }
  // Waits at most 10 s for a connection. Returns false if none arrives. Only for kSilent.
  bool AwaitConnection();

 protected:
  int fd_ = -1;

 private:
  int port_ = 0;
};

// Accepts connections. Reads once from each connection, sends `answer`, and closes the connection.
class FakePeer : public TakenPort {
 public:
  explicit FakePeer(std::string answer);
  ~FakePeer();

 private:
  void Serve();

  const std::string answer_;
  std::thread thread_;
};

}  // namespace ddprun
