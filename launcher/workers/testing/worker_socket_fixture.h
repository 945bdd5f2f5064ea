// A WorkerSocket and connections of workers to it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/worker_message.h"
#include "boost/asio/io_context.hpp"
#include "gtest/gtest.h"
#include "launcher/workers/worker_socket.h"

namespace ddprun {

class WorkerSocketTest : public ::testing::Test {
 protected:
  int Connect() {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, socket_->name().data(), socket_->name().size());
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_->name().size())),
              0)
        << std::strerror(errno);
    return fd;
  }
  void Send(int fd, const std::string& packet) {
    ASSERT_EQ(send(fd, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
  }
  static std::string Report(int round, int local_rank, int step) {
    return Encode(
        WorkerReport{.round = Round(round), .rank = {}, .local_rank = LocalRank(local_rank), .step = step});
  }
  // Runs the event loop until the report with this step has arrived, for at most 10 s.
  void RunUntilStep(int round, int local_rank, int step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(std::chrono::seconds(1));
      const auto last = socket_->Last(Round(round), LocalRank(local_rank));
      if (last && last->step == step) return;
    }
    FAIL() << "no report of step " << step;
  }

  static std::string Receive(int fd) {
    char packet[1024];
    const ssize_t n = recv(fd, packet, sizeof packet, 0);
    return n < 0 ? std::strerror(errno) : std::string(packet, static_cast<size_t>(n));
  }
  static bool AsksForSnapshot(const std::string& packet, int round) {
    return DecodeAgentRequest(packet) == AgentRequest{.round = Round(round), .take_snapshot = true};
  }
  static bool ReceivesNothing(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  boost::asio::io_context io_;
  std::unique_ptr<WorkerSocket> socket_ = WorkerSocket::Open(io_).value();
};

}  // namespace ddprun
