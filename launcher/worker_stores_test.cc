#include "launcher/worker_stores.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

// A worker's connection to a store, at the byte level.
class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  bool Send(const std::string& bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Returns the bytes received, "end" if the store closed the connection, "reset" if it reset the connection,
  // or an empty string if nothing has arrived yet.
  std::string Receive() {
    char buffer[64];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN ? "" : "reset";
    return n == 0 ? "end" : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  const int fd_;
  bool connected_ = false;
};

const std::string kCountKeys("\x00\xce\xf7\x85\x3c\x07", 6);                  // VALIDATE, GETNUMKEYS
const std::string kSetKey("\x01\x01\0\0\0\0\0\0\0k\x01\0\0\0\0\0\0\0v", 19);  // SET k = v
const std::string kNone(8, '\0');  // the reply to GETNUMKEYS for an empty store

class WorkerStoresTest : public ::testing::Test {
 protected:
  // Runs the io_context until client.Receive() returns a non-empty string, and returns that string. Returns
  // "nothing" after ten seconds.
  std::string Await(Client& client) {
    const auto end = std::chrono::steady_clock::now() + seconds(10);
    while (std::chrono::steady_clock::now() < end) {
      if (std::string got = client.Receive(); !got.empty()) return got;
      io_.restart();
      io_.run_one_for(milliseconds(10));
    }
    return "nothing";
  }

  boost::asio::io_context io_;
};

TEST_F(WorkerStoresTest, EachOfferOpensAnEmptyListeningStore) {
  FreshStores stores(io_, "127.0.0.1");
  const absl::StatusOr<int> first = stores.Offer();
  ASSERT_TRUE(first.ok()) << first.status();
  Client worker(*first);
  ASSERT_TRUE(worker.connected());
  ASSERT_TRUE(worker.Send(kCountKeys));
  EXPECT_EQ(Await(worker), kNone);
  ASSERT_TRUE(worker.Send(kSetKey));

  const absl::StatusOr<int> second = stores.Offer();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*second, *first);
  Client next(*second);
  ASSERT_TRUE(next.connected());
  ASSERT_TRUE(next.Send(kCountKeys));
  EXPECT_EQ(Await(next), kNone);
}

TEST_F(WorkerStoresTest, WithdrawingAStoreClosesConnectionsWithoutReset) {
  FreshStores stores(io_, "127.0.0.1");
  const int port = stores.Offer().value();
  Client worker(port);
  ASSERT_TRUE(worker.Send(kCountKeys));
  EXPECT_EQ(Await(worker), kNone);
  stores.Withdraw();
  EXPECT_FALSE(Client(port).connected());
  EXPECT_EQ(Await(worker), "end");
  stores.Withdraw();  // a second call has no effect
}

TEST_F(WorkerStoresTest, CanBeDestroyedWhileAStoreIsClosing) {
  {
    FreshStores stores(io_, "127.0.0.1");
    Client worker(stores.Offer().value());
    ASSERT_TRUE(worker.Send(kCountKeys));
    EXPECT_EQ(Await(worker), kNone);
    stores.Withdraw();
  }
  io_.restart();
  io_.poll();
}

TEST_F(WorkerStoresTest, OfferFailsForAnAddressOfAnotherMachine) {
  FreshStores stores(io_, "192.0.2.1");  // reserved for documentation (RFC 5737)
  EXPECT_FALSE(stores.Offer().ok());
}

TEST_F(WorkerStoresTest, EachOfferEmptiesTheStoreOnTheCoordinatorPort) {
  const auto host = CoordinatorHost::Open(io_, "127.0.0.1", 0,
                                          [](absl::string_view, absl::string_view, absl::string_view) {});
  ASSERT_TRUE(host.ok()) << host.status();
  CoordinatorPortStores stores(host->get());
  EXPECT_EQ(stores.Offer().value(), (*host)->port());
  Client first((*host)->port());
  ASSERT_TRUE(first.Send(kCountKeys + kSetKey + kCountKeys.substr(5)));
  std::string counts = Await(first);
  while (counts.size() < 16) counts += Await(first);
  EXPECT_EQ(counts, kNone + std::string("\x01\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(stores.Offer().value(), (*host)->port());
  Client second((*host)->port());
  ASSERT_TRUE(second.Send(kCountKeys));
  EXPECT_EQ(Await(second), kNone);
}

// True if a process can listen on `port` on all addresses, as a store hosted by a worker does.
bool Binds(int port) {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  const bool bound =
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
  close(fd);
  return bound;
}

TEST_F(WorkerStoresTest, OffersAFreePortForAWorkerHostedStore) {
  WorkerHostedStores stores(io_);
  for (int round = 0; round < 3; ++round) {
    const absl::StatusOr<int> port = stores.Offer();
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_FALSE(Client(*port).connected());
    EXPECT_TRUE(Binds(*port));
    stores.Withdraw();
  }
}

}  // namespace
}  // namespace ddprun
