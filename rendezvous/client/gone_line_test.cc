#include "rendezvous/client/gone_line.h"

#include <optional>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

TEST(GoneMessageTest, EscapesNames) {
  EXPECT_EQ(GoneMessage("my job&x", "n0/12/ab", "t-1"),
            "DELETE /nodes?job=my%20job%26x&node=n0%2f12%2fab&token=t-1 HTTP/1.1\r\nHost: coordinator\r\n"
            "Connection: close\r\n\r\n");
}

class OpenGoneLineTest : public ::testing::Test {
 protected:
  absl::StatusOr<tcp::socket> Open(const std::string& address, int port) {
    std::optional<absl::StatusOr<tcp::socket>> line;
    OpenGoneLine(io_, address, port, [&line](absl::StatusOr<tcp::socket> l) { line = std::move(l); });
    EXPECT_FALSE(line.has_value());
    io_.run();
    return *std::move(line);
  }
  boost::asio::io_context io_;
};

TEST_F(OpenGoneLineTest, Connects) {
  tcp::acceptor acceptor(io_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const absl::StatusOr<tcp::socket> line = Open("127.0.0.1", acceptor.local_endpoint().port());
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(line->is_open());
}

TEST_F(OpenGoneLineTest, ReportsARefusedConnection) {
  int port = 0;
  {
    tcp::acceptor acceptor(io_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
    port = acceptor.local_endpoint().port();
  }
  EXPECT_TRUE(absl::IsUnavailable(Open("127.0.0.1", port).status()));
}

TEST_F(OpenGoneLineTest, DoesNotResolveHostNames) {
  EXPECT_EQ(Open("node1", 1).status(), absl::UnavailableError("node1 is not a numeric address"));
}

}  // namespace
}  // namespace ddprun
