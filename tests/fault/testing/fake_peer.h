// Something that listens where a coordinator should, and is none.
#pragma once

#include <string>
#include <thread>

namespace ddprun {

// A TCP port of 127.0.0.1 that is taken.
class TakenPort {
 public:
  // kRefuses: bound and never listened on; kSilent: connections are made and nothing is ever said.
  enum class Kind { kRefuses, kSilent };
  explicit TakenPort(Kind kind);
  ~TakenPort();
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

  int port() const { return port_; }
  // True once somebody has connected; within 10 s. kSilent only.
  bool AwaitConnection();

 protected:
  int fd_ = -1;

 private:
  int port_ = 0;
};

// Reads something from each connection, says `answer`, and hangs up.
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
