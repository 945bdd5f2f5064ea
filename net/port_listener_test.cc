#include "net/port_listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

class PortListenerTest : public testing::Test {
 protected:
  ~PortListenerTest() override {
    thread_.Run([this] {
      listener_.reset();
      sockets_.clear();
    });
  }

  absl::Status Open(const std::string& address, int port) {
    return thread_.Run([&] {
      const auto keep_fd = [this](std::string who) {
        return [this, who](int fd) {
          accepted_.push_back((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 ? who : who + ", blocking");
          boost::system::error_code ec;
          sockets_.emplace_back(thread_.io()).assign(tcp::v4(), fd, ec);
        };
      };
      PortHandlers handlers{.c10d = keep_fd("c10d"), .grpc = keep_fd("grpc"), .http = nullptr};
      handlers.http = [this](tcp::socket socket) {
        accepted_.push_back("http");
        sockets_.push_back(std::move(socket));
      };
      handlers.on_full = [this](const absl::Status& why) { full_.push_back(why); };
      auto listener = PortListener::Open(thread_.io(), address, port, std::move(handlers));
      if (!listener.ok()) return listener.status();
      listener_ = *std::move(listener);
      port_ = listener_->port();
      return absl::OkStatus();
    });
  }
  std::vector<std::string> Accepted() {
    return thread_.Run([this] { return accepted_; });
  }
  bool NumAcceptedReaches(size_t n) {
    return thread_.Eventually([this, n] { return accepted_.size() == n; });
  }

  IoThread thread_;
  std::unique_ptr<PortListener> listener_;
  int port_ = 0;
  std::vector<std::string> accepted_;  // used on thread_ only
  std::vector<tcp::socket> sockets_;
  std::vector<absl::Status> full_;
};

TEST_F(PortListenerTest, FirstByteSelectsTheHandler) {
  const struct {
    char first;
    const char* who;
  } kTable[] = {{'P', "grpc"},  {0x16, "grpc"}, {'D', "http"},    {'G', "http"}, {'H', "http"},
                {0x00, "c10d"}, {0x03, "c10d"}, {'\xff', "c10d"}, {'g', "c10d"}, {'\x12', "c10d"}};
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  size_t n = 0;
  for (const auto& row : kTable) {
    RawPeer peer(port_);
    ASSERT_TRUE(peer.Send({&row.first, 1}));
    ASSERT_TRUE(NumAcceptedReaches(++n)) << row.first;
    EXPECT_EQ(Accepted().back(), row.who) << row.first;
    // The listener has not consumed the byte.
    char first = 0;
    EXPECT_EQ(thread_.Run([&] { return ::recv(sockets_.back().native_handle(), &first, 1, MSG_DONTWAIT); }),
              1);
    EXPECT_EQ(first, row.first);
  }
}

TEST_F(PortListenerTest, KeepsASilentPeerUntilItSends) {
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  RawPeer silent(port_), closed(port_);
  closed.Close();
  RawPeer other(port_);
  ASSERT_TRUE(other.Send("x"));
  ASSERT_TRUE(NumAcceptedReaches(1));
  ASSERT_TRUE(silent.Send("G"));
  ASSERT_TRUE(NumAcceptedReaches(2));
  EXPECT_EQ(Accepted(), (std::vector<std::string>{"c10d", "http"}));
}

TEST_F(PortListenerTest, ConnectionsHaveKeepaliveEnabled) {
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  RawPeer peer(port_);
  ASSERT_TRUE(peer.Send("x"));
  ASSERT_TRUE(NumAcceptedReaches(1));
  boost::asio::socket_base::keep_alive keep_alive;
  thread_.Run([&] { sockets_[0].get_option(keep_alive); });
  EXPECT_TRUE(keep_alive.value());
}

TEST_F(PortListenerTest, CloseClosesSilentPeersWithoutAReset) {
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  RawPeer silent(port_), sender(port_);
  ASSERT_TRUE(sender.Send("x"));
  ASSERT_TRUE(NumAcceptedReaches(1));
  thread_.Run([this] { listener_->Close(); });
  std::string ignored;
  EXPECT_EQ(silent.ReceiveToEnd(&ignored), RawPeer::End::kFin);
  EXPECT_TRUE(Open("127.0.0.1", port_).ok()) << "the port must be free again";
}

TEST_F(PortListenerTest, ListensOnAllAddressesOfTheHost) {
  ASSERT_TRUE(Open("", 0).ok());
  RawPeer v4(port_);
  ASSERT_TRUE(v4.Send("x"));
  ASSERT_TRUE(NumAcceptedReaches(1));
  // On a host without IPv6, the listener uses IPv4 only.
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (probe < 0) return;
  ::close(probe);
  RawPeer v6(port_, "::1");
  ASSERT_TRUE(v6.Send("x"));
  ASSERT_TRUE(NumAcceptedReaches(2));
}

TEST_F(PortListenerTest, ErrorForATakenPortIncludesThePort) {
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  const int taken = port_;
  const absl::Status status = Open("127.0.0.1", taken);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find(absl::StrCat("port ", taken, " is taken")), absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("give another port"), absl::string_view::npos) << status;
}

TEST_F(PortListenerTest, RejectsInvalidAddressesAndPorts) {
  const struct {
    const char* address;
    int port;
    const char* why;
  } kTable[] = {{"192.0.2.1", 0, "192.0.2.1 is not an address of this host"},
                {"no.such.host.invalid", 0, "cannot listen on no.such.host.invalid"},
                {"127.0.0.1", -1, "port -1 is not valid"},
                {"127.0.0.1", 65536, "port 65536 is not valid"}};
  for (const auto& row : kTable) {
    const absl::Status status = Open(row.address, row.port);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(row.why), absl::string_view::npos) << status;
  }
}

TEST_F(PortListenerTest, AcceptsConnectionsAfterDescriptorsAreFreed) {
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  std::vector<RawPeer> peers(8);
  rlimit files;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  const rlimit none_left{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  for (RawPeer& peer : peers) {
    peer.Connect(port_);
    ASSERT_TRUE(peer.Send("x"));
  }
  const bool fired = thread_.Eventually([this] { return listener_->num_pauses() > 0; });
  const auto begin = std::chrono::steady_clock::now();
  const int64_t pauses = thread_.Run([this] { return listener_->num_pauses(); });
  const bool again = thread_.Eventually([&] { return listener_->num_pauses() >= pauses + 3; });
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  ASSERT_TRUE(fired && again) << "accept never ran out of descriptors: the test did not inject its fault";
  EXPECT_GE(took, milliseconds(100)) << "accepting was retried without a pause";
  EXPECT_TRUE(NumAcceptedReaches(peers.size()));
  const std::vector<absl::Status> full = thread_.Run([this] { return full_; });
  ASSERT_EQ(full.size(), 1) << "on_full must not be called for each retry";
  EXPECT_EQ(full[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full[0].message().find("Too many open files (raise `ulimit -n`)"), absl::string_view::npos)
      << full[0];
}

TEST_F(PortListenerTest, ReservesDescriptorsForOtherUses) {
  ASSERT_TRUE(Open("127.0.0.1", 0).ok());
  std::vector<RawPeer> peers(60);
  rlimit files;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  constexpr int kFree = 40;
  const rlimit few{.rlim_cur = static_cast<rlim_t>(lowest_free + kFree), .rlim_max = files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (RawPeer& peer : peers) {
    peer.Connect(port_);
    ASSERT_TRUE(peer.Send("x"));
  }
  const bool fired = thread_.Eventually([this] { return listener_->num_pauses() >= 3; });
  std::vector<int> others;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) others.push_back(fd);
  for (const int fd : others) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_TRUE(fired);
  EXPECT_GE(others.size(), 20);
  EXPECT_TRUE(NumAcceptedReaches(peers.size()));
}

}  // namespace
}  // namespace ddprun
