// Tests ddprun's c10d client with ddprun's store and with misbehaving servers.

#include "rendezvous/client/c10d_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "rendezvous/c10d/c10d_server.h"

namespace ddprun {
namespace {

constexpr Duration kLong = seconds(20);

class C10dClientTest : public testing::Test {
 protected:
  C10dClientTest() {
    thread_.Run([this] {
      auto store = WorkerStore::Open(thread_.io(), "", 0);
      EXPECT_TRUE(store.ok()) << store.status();
      if (store.ok()) store_ = *std::move(store);
    });
  }
  ~C10dClientTest() override {
    thread_.Run([this] { store_.reset(); });
  }

  std::unique_ptr<C10dClient> Connect(const std::string& host = "127.0.0.1") {
    auto client = C10dClient::Connect(host, store_->port(), kLong);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  bool EventuallyNumWaitingIs(int64_t n) {
    return thread_.Eventually([&] { return store_->server().store().NumWaiting() == n; });
  }

  IoThread thread_;
  std::unique_ptr<WorkerStore> store_;
};

TEST_F(C10dClientTest, EveryOperation) {
  const auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Set("k", "v").ok());
  EXPECT_EQ(client->Get("k", kLong).value(), "v");
  EXPECT_EQ(client->Add("n", 5).value(), 5);
  EXPECT_EQ(client->Add("n", -7).value(), -2);
  EXPECT_EQ(client->Get("n", kLong).value(), "-2");
  EXPECT_EQ(client->CompareSet("c", "", "a").value(), "a");
  EXPECT_EQ(client->CompareSet("c", "x", "b").value(), "a");
  EXPECT_TRUE(client->Check({"k", "n"}).value());
  EXPECT_FALSE(client->Check({"k", "missing"}).value());
  EXPECT_TRUE(client->Wait({"k", "n"}, kLong).ok());
  EXPECT_EQ(client->NumKeys().value(), 3);
  EXPECT_TRUE(client->DeleteKey("k").value());
  EXPECT_FALSE(client->DeleteKey("k").value());
  EXPECT_EQ(client->NumKeys().value(), 2);
}

TEST_F(C10dClientTest, UsesTheSameKeysAsPyTorch) {
  const auto client = Connect();
  ASSERT_TRUE(client->Set("k", "v").ok());
  ASSERT_TRUE(client->Check({"k"}).ok());
  EXPECT_TRUE(thread_.Run([&] { return store_->server().store().Contains("/k"); }));
}

TEST_F(C10dClientTest, LargeAndBinaryValues) {
  const auto client = Connect();
  std::string value(8 << 20, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 251);
  ASSERT_TRUE(client->Set("v", value).ok());
  const auto got = client->Get("v", kLong);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(*got == value);
}

TEST_F(C10dClientTest, GetWaitsForAnotherClient) {
  const auto setter = Connect();
  auto value = std::async(std::launch::async, [client = Connect()] { return client->Get("k", kLong); });
  ASSERT_TRUE(EventuallyNumWaitingIs(1));
  ASSERT_TRUE(setter->Set("k", "v").ok());
  const auto got = value.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "v");
}

TEST_F(C10dClientTest, ATimedOutWaitNamesItsKeysAndLeavesTheClientUsable) {
  const auto client = Connect();
  const absl::Status late = client->Wait({"a", "b"}, milliseconds(1));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.message().find("/a or /b"), absl::string_view::npos) << late;
  EXPECT_TRUE(EventuallyNumWaitingIs(0));
  ASSERT_TRUE(client->Set("a", "").ok());
  ASSERT_TRUE(client->Set("b", "").ok());
  EXPECT_TRUE(client->Wait({"a", "b"}, kLong).ok());
}

TEST_F(C10dClientTest, ReportsTheLocalAddress) {
  EXPECT_EQ(Connect()->local_address(), "127.0.0.1");
  EXPECT_EQ(Connect("127.0.0.2")->local_address(), "127.0.0.1");
}

TEST_F(C10dClientTest, ALostStoreStaysUnavailable) {
  const auto client = Connect();
  thread_.Run([this] { store_.reset(); });
  const absl::Status lost = client->Wait({"k"}, kLong);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(lost.message().find("127.0.0.1:"), absl::string_view::npos) << lost;
  EXPECT_EQ(client->Add("n", 1).status(), lost);
  EXPECT_EQ(client->Set("n", ""), lost);
}

// A server that accepts one connection and runs a script on it.
class ScriptedServer {
 public:
  using Script = std::function<void(int fd)>;

  explicit ScriptedServer(Script script) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, script = std::move(script)] {
      const int fd = ::accept(listener_, nullptr, nullptr);
      script(fd);
      ::close(fd);
      ::shutdown(listener_, SHUT_RDWR);  // refuses later connections
    });
  }
  ~ScriptedServer() {
    thread_.join();
    ::close(listener_);
  }
  int port() const { return port_; }

  // Reads the greeting and answers the ping in it.
  static void Greet(int fd) {
    char greeting[10];
    ASSERT_EQ(::recv(fd, greeting, sizeof greeting, MSG_WAITALL), 10);
    ASSERT_EQ(::send(fd, greeting + 6, 4, MSG_NOSIGNAL), 4);
  }
  static void ReadAll(int fd) {
    char ignored[256];
    while (::recv(fd, ignored, sizeof ignored, 0) > 0) {
    }
  }

 private:
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(C10dClientFaultTest, WaitSucceedsIfTheKeyIsSetDuringCancellation) {
  ScriptedServer server([](int fd) {
    ScriptedServer::Greet(fd);
    char wait[19], cancel;
    ASSERT_EQ(::recv(fd, wait, sizeof wait, MSG_WAITALL), 19);
    ASSERT_EQ(::recv(fd, &cancel, 1, MSG_WAITALL), 1);
    ASSERT_EQ(cancel, 0x0c);
    ASSERT_EQ(::send(fd, "\0\1", 2, MSG_NOSIGNAL), 2);
    ScriptedServer::ReadAll(fd);
  });
  auto client = C10dClient::Connect("127.0.0.1", server.port(), kLong);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Wait({"k"}, milliseconds(1)).ok());
}

TEST(C10dClientFaultTest, AStoreThatDoesNotAnswerIsUnavailable) {
  ScriptedServer server([](int fd) {
    ScriptedServer::Greet(fd);
    ScriptedServer::ReadAll(fd);
  });
  auto client = C10dClient::Connect("127.0.0.1", server.port(), milliseconds(200));
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Status late = (*client)->Add("n", 1).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(late.message().find("ADD: timed out"), absl::string_view::npos) << late;
  EXPECT_EQ((*client)->NumKeys().status(), late);
}

TEST(C10dClientFaultTest, ReportsAServerThatIsNotAStore) {
  ScriptedServer server([](int fd) {
    ::send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL);
    ScriptedServer::ReadAll(fd);
  });
  const auto client = C10dClient::Connect("127.0.0.1", server.port(), kLong);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(client.status().message().find("not a c10d store"), absl::string_view::npos) << client.status();
}

TEST(C10dClientFaultTest, IsUnavailableIfTheServerClosesOrRefusesTheConnection) {
  int port;
  {
    ScriptedServer server([](int) {});
    port = server.port();
    const auto client = C10dClient::Connect("127.0.0.1", port, milliseconds(100));
    EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto client = C10dClient::Connect("127.0.0.1", port, milliseconds(50));
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(client.status().message().find("Connection refused"), absl::string_view::npos) << client.status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
}

TEST(C10dClientFaultTest, ReportsANameThatDoesNotResolve) {
  const auto client = C10dClient::Connect("no.such.host.invalid", 1, milliseconds(1));
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(client.status().message().find("no.such.host.invalid:1"), absl::string_view::npos);
  EXPECT_NE(client.status().message().find("does not resolve"), absl::string_view::npos) << client.status();
}

TEST(C10dClientFaultTest, TheStoreMayStartAfterItsClients) {
  // The port is bound, but no store listens yet, as when a worker starts before its store.
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(probe, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size), 0);
  auto client = std::async(std::launch::async, [port = ntohs(address.sin_port)] {
    return C10dClient::Connect("127.0.0.1", port, kLong);
  });
  ASSERT_EQ(::listen(probe, 1), 0);
  const int fd = ::accept(probe, nullptr, nullptr);
  ASSERT_GE(fd, 0);
  ScriptedServer::Greet(fd);
  EXPECT_TRUE(client.get().ok());
  ::close(fd);
  ::close(probe);
}

}  // namespace
}  // namespace ddprun
