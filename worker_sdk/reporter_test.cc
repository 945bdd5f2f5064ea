#include "worker_sdk/reporter.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"

namespace ddprun {
namespace {

// The agent's end of the socket.
class FakeAgent {
 public:
  FakeAgent() : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0)) {
    sockaddr_un addr{};
    addr.sun_family = AF_UNIX;
    socklen_t len = sizeof(sa_family_t);  // the kernel chooses an abstract name
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&addr), len), 0);
    len = sizeof(addr);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&addr), &len), 0);
    name_ = std::string(addr.sun_path + 1, len - offsetof(sockaddr_un, sun_path) - 1);
  }
  ~FakeAgent() {
    if (connection_ >= 0) close(connection_);
    close(listener_);
  }

  const std::string& name() const { return name_; }
  void Listen() { EXPECT_EQ(listen(listener_, 8), 0); }

  // The next report, when one is there.
  std::optional<proto::WorkerReport> Next() {
    if (connection_ < 0) connection_ = accept(listener_, nullptr, nullptr);
    char packet[4096];
    const ssize_t n = recv(connection_, packet, sizeof(packet), MSG_DONTWAIT);
    if (n <= 0) return std::nullopt;
    proto::WorkerReport report;
    EXPECT_TRUE(report.ParseFromArray(packet, static_cast<int>(n)));
    return report;
  }

 private:
  const int listener_;
  int connection_ = -1;
  std::string name_;
};

WorkerEnv EnvOf(const FakeAgent& agent) {
  WorkerEnv env;
  env.rank = Rank(5);
  env.local_rank = LocalRank(1);
  env.round = Round(7);
  env.agent_socket = agent.name();
  return env;
}

TEST(ReporterTest, TellsWhoAndWhere) {
  FakeAgent agent;
  agent.Listen();
  Reporter reporter(EnvOf(agent));
  reporter.Report(12, WorkerPhase::kSnapshotting, "half done");
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->round(), 7);
  EXPECT_EQ(report->rank(), 5);
  EXPECT_EQ(report->local_rank(), 1);
  EXPECT_EQ(report->pid(), getpid());
  EXPECT_EQ(report->step(), 12);
  EXPECT_EQ(report->phase(), proto::WORKER_PHASE_SNAPSHOTTING);
  EXPECT_EQ(report->message(), "half done");
  EXPECT_EQ(reporter.num_sent(), 1);
}

TEST(ReporterTest, IsSilentWithoutAnAgent) {
  Reporter reporter{WorkerEnv()};
  reporter.Report(1, WorkerPhase::kTraining);
  EXPECT_EQ(reporter.num_sent(), 0);
}

TEST(ReporterTest, FindsAnAgentThatComesLater) {
  FakeAgent agent;
  Reporter reporter(EnvOf(agent));
  reporter.Report(1, WorkerPhase::kTraining);  // refused: nobody listens
  EXPECT_EQ(reporter.num_sent(), 0);
  agent.Listen();
  reporter.Report(2, WorkerPhase::kTraining);
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step(), 2);
}

TEST(ReporterTest, SurvivesTheEndOfItsAgent) {
  std::optional<FakeAgent> agent(std::in_place);
  agent->Listen();
  Reporter reporter(EnvOf(*agent));
  reporter.Report(1, WorkerPhase::kTraining);
  ASSERT_TRUE(agent->Next().has_value());
  agent.reset();
  reporter.Report(2, WorkerPhase::kTraining);  // no SIGPIPE
  reporter.Report(3, WorkerPhase::kTraining);
  EXPECT_EQ(reporter.num_sent(), 1);
}

TEST(ReporterTest, LosesReportsRatherThanWaitForASlowAgent) {
  FakeAgent agent;
  agent.Listen();
  Reporter reporter(EnvOf(agent));
  constexpr int kReports = 20000;
  for (int i = 0; i < kReports; ++i) reporter.Report(i, WorkerPhase::kTraining);
  EXPECT_GT(reporter.num_sent(), 0);
  EXPECT_LT(reporter.num_sent(), kReports);
  while (agent.Next().has_value()) {
  }
  reporter.Report(kReports, WorkerPhase::kTraining);  // and goes on when there is room
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step(), kReports);
}

TEST(ReporterTest, CutsLongMessagesBetweenCharacters) {
  FakeAgent agent;
  agent.Listen();
  Reporter reporter(EnvOf(agent));
  reporter.Report(1, WorkerPhase::kTraining, absl::StrCat(std::string(999, 'x'), "\xc3\xa9 and more"));
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->message(), std::string(999, 'x'));
}

}  // namespace
}  // namespace ddprun
