// Servers that occupy a coordinator's port but are not coordinators.
#pragma once

#include <string>
#include <thread>

namespace ddprun {

// A taken TCP port of 127.0.0.1.
class TakenPort {
 public:
  // kRefuses: bound without listening; kSilent: accepts connections and sends nothing.
  enum class Kind { kRefuses, kSilent };
  explicit TakenPort(Kind kind);
  ~TakenPort();
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

  int port() const { return port_; }
  // Waits at most 10 s for a connection; false if none arrives. kSilent only.
  bool AwaitConnection();

 protected:
  int fd_ = -1;

 private:
  int port_ = 0;
};

// Reads once from each connection, sends `answer`, and closes it.
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
