#include "launcher/agent/worker_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

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
    proto::WorkerReport report;
    report.set_round(round);
    report.set_local_rank(local_rank);
    report.set_step(step);
    return report.SerializeAsString();
  }
  // Runs the loop until the report with this step has arrived, ten seconds at most.
  void RunUntilStep(int round, int local_rank, int step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(std::chrono::seconds(1));
      const auto last = socket_->Last(Round(round), LocalRank(local_rank));
      if (last && last->step() == step) return;
    }
    FAIL() << "no report of step " << step;
  }

  boost::asio::io_context io_;
  std::unique_ptr<WorkerSocket> socket_ = WorkerSocket::Open(io_).value();
};

TEST_F(WorkerSocketTest, KeepsTheNewestReportOfEachWorker) {
  const int a = Connect();
  const int b = Connect();
  Send(a, Report(2, 0, 10));
  Send(b, Report(2, 1, 11));
  Send(a, Report(2, 0, 12));
  RunUntilStep(2, 0, 12);
  RunUntilStep(2, 1, 11);
  EXPECT_FALSE(socket_->Last(Round(3), LocalRank(0)).has_value());
  close(a);
  close(b);
}

TEST_F(WorkerSocketTest, GarbageHarmsNobody) {
  const int bad = Connect();
  const int good = Connect();
  Send(bad, std::string(3000, '\xff'));
  Send(bad, Report(1, -5, 1));
  Send(good, Report(1, 0, 7));
  RunUntilStep(1, 0, 7);
  close(bad);
  close(good);
}

}  // namespace
}  // namespace ddprun
