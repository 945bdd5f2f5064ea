#include "rendezvous/client/find_coordinator.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/read_until.hpp"
#include "boost/asio/write.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/versions.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Page(const std::string& body) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}
std::string Healthy(int protocol = kProtocolVersion, absl::string_view more = "") {
  return Page(absl::StrCat("{\"service\":\"ddprun\",\"protocol\":", protocol, more, "}\n"));
}
std::string HasJob(bool has_job) {
  return Healthy(kProtocolVersion, absl::StrCat(",\"has_job\":", has_job ? "true" : "false"));
}

// A server that answers each connection with the same text.
class FakeHost {
 public:
  FakeHost(asio::io_context& io, std::string answer, uint16_t port = 0)
      : acceptor_(io, tcp::endpoint(asio::ip::address_v4::loopback(), port)), answer_(std::move(answer)) {
    Accept();
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  const std::string& request() const { return request_; }
  // After this call, the kernel drops the SYNs of further connections while one connection waits to be
  // accepted.
  void SetBacklogToOne() { acceptor_.listen(0); }
  // Closes the next connection without an answer.
  void HangUpOnce() { hang_up_ = true; }

 private:
  void Accept() {
    acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
      if (error) return;
      if (std::exchange(hang_up_, false)) return Accept();
      auto peer = std::make_shared<tcp::socket>(std::move(socket));
      auto request = std::make_shared<std::string>();
      asio::async_read_until(*peer, asio::dynamic_buffer(*request), "\r\n\r\n",
                             [this, peer, request](const boost::system::error_code& read_error, size_t) {
                               if (read_error) return;
                               request_ = *request;
                               asio::async_write(*peer, asio::buffer(answer_),
                                                 [peer](const boost::system::error_code&, size_t) {});
                             });
      Accept();
    });
  }

  tcp::acceptor acceptor_;
  const std::string answer_;
  std::string request_;
  bool hang_up_ = false;
};

class FindCoordinatorTest : public ::testing::Test {
 protected:
  absl::StatusOr<FoundCoordinator> Find(
      const std::string& host, int port, Duration timeout, std::function<void()> on_line = [] {}) {
    return FindWithin(host, port, {.total = timeout, .advice = "raise read_timeout"}, on_line);
  }
  absl::StatusOr<FoundCoordinator> FindWithin(
      const std::string& host, int port, const FindLimits& limits, std::function<void()> on_line = [] {}) {
    std::optional<absl::StatusOr<FoundCoordinator>> found;
    asio::co_spawn(io_,
                   FindCoordinator(host, port, limits,
                                   [this, on_line](absl::string_view text) {
                                     lines_.push_back(std::string(text));
                                     on_line();
                                   }),
                   [&found](std::exception_ptr error, absl::StatusOr<FoundCoordinator> result) {
                     EXPECT_EQ(error, nullptr);
                     found = std::move(result);
                   });
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    while (!found && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(seconds(1));
    }
    if (!found) return absl::DeadlineExceededError("the search did not end");
    return *std::move(found);
  }
  // Returns a port on which no server listens.
  int FreePort() { return FakeHost(io_, "").port(); }

  asio::io_context io_;
  std::vector<std::string> lines_;
};

TEST_F(FindCoordinatorTest, ReturnsBothAddresses) {
  FakeHost host(io_, Healthy());
  const auto found = Find("localhost", host.port(), seconds(10));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->address, "127.0.0.1");
  EXPECT_EQ(found->port, host.port());
  EXPECT_EQ(found->local_address, "127.0.0.1");
  EXPECT_THAT(host.request(), StartsWith("GET /healthz HTTP/1.1\r\n"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(FindCoordinatorTest, FindsTheJobAmongSeveralPorts) {
  FakeHost other_program(io_, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  FakeHost other_job(io_, HasJob(false));
  FakeHost host(io_, HasJob(true));
  const FindLimits limits = {
      .total = seconds(10), .more_ports = {FreePort(), other_job.port(), host.port()}, .job = "my job"};
  const auto found = FindWithin("127.0.0.1", other_program.port(), limits);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->port, host.port());
  EXPECT_THAT(host.request(), StartsWith("GET /healthz?job=my%20job HTTP/1.1\r\n"));
}

TEST_F(FindCoordinatorTest, ACoordinatorThatTakesAnyJobMayDo) {
  FakeHost host(io_, Healthy(kProtocolVersion, ",\"has_job\":false,\"takes_any_job\":true"));
  FindLimits limits = {.total = milliseconds(200), .job = "j"};
  EXPECT_FALSE(FindWithin("127.0.0.1", host.port(), limits).ok());
  limits.or_any_job = true;
  EXPECT_TRUE(FindWithin("127.0.0.1", host.port(), limits).ok());
}

TEST_F(FindCoordinatorTest, FollowsTheProcessThatKnowsTheLeaderIfWanted) {
  FakeHost leader(io_, HasJob(true));
  FakeHost other(io_,
                 Healthy(kProtocolVersion,
                         absl::StrCat(",\"has_job\":false,\"leader\":\"127.0.0.1:", leader.port(), "\"")));
  FindLimits limits = {.total = milliseconds(200), .job = "j", .follows = false};
  EXPECT_FALSE(FindWithin("127.0.0.1", other.port(), limits).ok());
  limits.follows = true;
  limits.total = seconds(10);
  const auto found = FindWithin("127.0.0.1", other.port(), limits);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->port, leader.port());
}

TEST_F(FindCoordinatorTest, TheErrorNamesAllPorts) {
  FakeHost other_job(io_, HasJob(false));
  const int free = FreePort(), other_free = FreePort();
  const FindLimits limits = {.total = seconds(1), .more_ports = {other_job.port(), other_free}, .job = "j"};
  const auto found = FindWithin("127.0.0.1", free, limits);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(found.status().message()),
              StartsWith(absl::StrCat("no server listens at 127.0.0.1, ports ", free, ", ", other_free,
                                      "; the coordinator at 127.0.0.1:", other_job.port(),
                                      " does not have the job j (tried for")));
}

TEST_F(FindCoordinatorTest, WaitsForACoordinatorThatStartsLater) {
  const int port = FreePort();
  std::optional<FakeHost> host;
  const auto found = Find("127.0.0.1", port, seconds(20), [&] {
    if (!host) host.emplace(io_, Healthy(), static_cast<uint16_t>(port));
  });
  EXPECT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(lines_.size(), 1u);  // the cause did not change
  EXPECT_THAT(lines_[0],
              AllOf(StartsWith("waiting for the coordinator, "), HasSubstr("no server listens at")));
}

TEST_F(FindCoordinatorTest, TimesOutWithoutACoordinator) {
  const auto found = Find("127.0.0.1", FreePort(), milliseconds(30));
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(found.status().message()),
              AllOf(HasSubstr("no server listens at 127.0.0.1:"), HasSubstr("read_timeout")));
}

TEST_F(FindCoordinatorTest, ARefusedConnectionMayBeFinal) {
  const FindLimits limits{.total = seconds(60), .refusal_is_final = true};
  const auto found = FindWithin("127.0.0.1", FreePort(), limits);  // the fixture fails after 20 s
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("no server listens at 127.0.0.1:"));
  EXPECT_THAT(lines_, IsEmpty());
  FakeHost host(io_, Healthy());
  EXPECT_TRUE(FindWithin("localhost", host.port(), limits).ok());
}

TEST_F(FindCoordinatorTest, ReportsANameThatDoesNotResolve) {
  const auto found = Find("no.such.host.invalid", 1, milliseconds(1500));
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("no.such.host.invalid:1"));
}

TEST_F(FindCoordinatorTest, AServerThatIsNotACoordinatorIsAnImmediateError) {
  for (const std::string& answer : {
           std::string(),
           std::string("SSH-2.0-OpenSSH_9.2p1\r\n"),
           Page("hello"),
           Page("[1, 2]"),
           Page("{\"service\":\"etcd\",\"protocol\":1}"),
           Page("{\"service\":\"ddprun\"}"),
           Page("{\"service\":\"ddprun\",\"protocol\":\"one\"}"),
           Page(std::string(10'000, '[')),
       }) {
    FakeHost host(io_, answer);
    const auto found = Find("127.0.0.1", host.port(), seconds(20));
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << answer.substr(0, 80);
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("is not a ddprun coordinator"));
  }
}

TEST_F(FindCoordinatorTest, RetriesAfterAClosedConnection) {
  FakeHost host(io_, Healthy());
  host.HangUpOnce();
  const auto found = Find("127.0.0.1", host.port(), seconds(20));
  EXPECT_TRUE(found.ok()) << found.status();
}

TEST_F(FindCoordinatorTest, ADifferentProtocolVersionIsAnError) {
  FakeHost host(io_, Healthy(kProtocolVersion + 1));
  const auto found = Find("127.0.0.1", host.port(), seconds(20));
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("start the same ddprun on all nodes"));
}

TEST_F(FindCoordinatorTest, RetriesAfterALostSyn) {
  asio::io_context host_io;  // begins to run at the second attempt
  FakeHost host(host_io, Healthy());
  host.SetBacklogToOne();
  // Opens more connections than the backlog holds. A nonblocking connect sends its SYN immediately.
  std::vector<std::unique_ptr<tcp::socket>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(std::make_unique<tcp::socket>(io_));
    others.back()->async_connect({asio::ip::address_v4::loopback(), static_cast<uint16_t>(host.port())},
                                 [](const boost::system::error_code&) {});
  }
  int attempts = 0;
  std::thread host_thread;
  const auto found = FindWithin("127.0.0.1", host.port(),
                                {.total = seconds(20), .trace = [&](absl::string_view text) {
                                   if (!absl::StartsWith(text, "connecting to ") || ++attempts != 2) return;
                                   host_io.poll();  // accepts the connections of `others`
                                   host_thread = std::thread([&host_io] { host_io.run(); });
                                 }});
  host_io.stop();
  if (host_thread.joinable()) host_thread.join();
  EXPECT_TRUE(found.ok()) << found.status();
  EXPECT_GE(attempts, 2);
}

TEST_F(FindCoordinatorTest, TheTimeoutAppliesToTheAnswer) {
  asio::io_context never_run;
  FakeHost host(never_run, Healthy());
  const auto found = Find("127.0.0.1", host.port(), milliseconds(20));
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("did not answer in time"));
}

}  // namespace
}  // namespace ddprun
