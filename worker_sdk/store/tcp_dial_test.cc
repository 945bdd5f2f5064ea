#include "worker_sdk/store/tcp_dial.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TimePoint In(Duration d) { return std::chrono::steady_clock::now() + d; }

// Returns a listening socket on a free port of 127.0.0.1, and the port.
std::pair<UniqueFd, int> Listener() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd.get(), 8), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return {std::move(fd), ntohs(address.sin_port)};
}

TEST(DialTcpTest, ConnectsByAddressAndByName) {
  const auto [listener, port] = Listener();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const StatusOr<UniqueFd> fd = DialTcp(host, port, In(seconds(30)));
    ASSERT_TRUE(fd.ok()) << host << ": " << fd.status();
    EXPECT_TRUE(AwaitReady(fd->get(), POLLOUT, In(seconds(1))).ok());
  }
}

TEST(DialTcpTest, FailsWithoutAListener) {
  auto [listener, port] = Listener();
  listener.Reset();
  const Status status = DialTcp("127.0.0.1", port, In(seconds(30))).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("refused"));
}

TEST(DialTcpTest, NamesTheHostThatDoesNotResolve) {
  const Status status = DialTcp("no.such.host.invalid", 1, In(seconds(30))).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no.such.host.invalid"));
}

TEST(AwaitReadyTest, TimesOut) {
  const auto [listener, port] = Listener();
  EXPECT_EQ(AwaitReady(listener.get(), POLLIN, In(milliseconds(1))).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(AwaitReady(listener.get(), POLLIN, In(-seconds(1))).code(), StatusCode::kDeadlineExceeded);
}

TEST(AwaitReadyTest, IsCancelledByADescriptorThatIsReadable) {
  const auto [listener, port] = Listener();
  const UniqueFd cancel(eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(AwaitReady(listener.get(), POLLIN, In(seconds(300)), cancel.get()).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(AwaitReady(-1, 0, In(seconds(300)), cancel.get()).code(), StatusCode::kCancelled);
  EXPECT_EQ(AwaitReady(-1, 0, In(milliseconds(1))).code(), StatusCode::kDeadlineExceeded);
}

// Once the queue of the listener is full, connections are not accepted.
TEST(DialTcpTest, IsCancelledByADescriptorThatIsReadable) {
  const auto [listener, port] = Listener();
  const UniqueFd cancel(eventfd(1, EFD_CLOEXEC));
  ASSERT_EQ(listen(listener.get(), 0), 0);
  std::vector<UniqueFd> queued;
  while (true) {
    StatusOr<UniqueFd> fd = DialTcp("127.0.0.1", port, In(seconds(300)), cancel.get());
    if (!fd.ok()) {
      EXPECT_EQ(fd.status().code(), StatusCode::kCancelled) << fd.status();
      break;
    }
    queued.push_back(*std::move(fd));
    ASSERT_LT(queued.size(), 100u);
  }
  EXPECT_EQ(DialTcp("no.such.host.invalid", port, In(seconds(300)), cancel.get()).status().code(),
            StatusCode::kCancelled);
}

TEST(LocalAddressTowardsTest, LoopbackIsReachedFromLoopback) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1", In(seconds(30))).value_or("none"), "127.0.0.1");
  EXPECT_THAT(LocalAddressTowards("localhost", In(seconds(30))).value_or("none"),
              AnyOf(StartsWith("127"), "::1"));
}

TEST(LocalAddressTowardsTest, NamesTheHostThatDoesNotResolve) {
  const Status status = LocalAddressTowards("no.such.host.invalid", In(seconds(30))).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no.such.host.invalid"));
}

}  // namespace
}  // namespace ddprun
