#include "worker_sdk/store/c10d_store.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// A c10d store that serves one connection at a time, with the requests that the client uses.
// tests/train runs the client against ddprun's own store.
class FakeServer {
 public:
  FakeServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      while (true) {
        const UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
        if (!fd) return;
        ++connections_;
        Serve(fd.get());
      }
    });
  }
  ~FakeServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    Hangup();
    thread_.join();
  }

  int port() const { return port_; }
  int connections() const { return connections_; }
  // Closes the current connection.
  void Hangup() {
    const std::lock_guard<std::mutex> lock(mu_);
    if (served_ >= 0) shutdown(served_, SHUT_RDWR);
  }
  std::string ValueOf(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mu_);
    return values_[key];
  }
  // Sent instead of the echo of PING, if not empty.
  std::string echo;
  // Sent in reply to WAIT, if not empty.
  std::string wait_reply;
  // Set when a WAIT for a key that is missing has arrived, if it is not null.
  Event* waits = nullptr;

 private:
  static bool Read(int fd, void* data, size_t size) {
    return size == 0 || recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  static bool ReadString(int fd, std::string* text) {
    uint64_t size = 0;
    if (!Read(fd, &size, sizeof size) || size > 1 << 20) return false;
    text->resize(size);
    return Read(fd, text->data(), size);
  }
  static void Write(int fd, const std::string& bytes) { send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  void Serve(int fd) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      served_ = fd;
    }
    while (Request(fd)) {
    }
    const std::lock_guard<std::mutex> lock(mu_);
    served_ = -1;
  }

  bool Request(int fd) {
    char op = 0;
    if (!Read(fd, &op, 1)) return false;
    std::string key, value;
    uint32_t number = 0;
    uint64_t count = 0;
    switch (op) {
      case 0:  // VALIDATE
        return Read(fd, &number, sizeof number) && number == 0x3C85F7CE;
      case 13:  // PING
        if (!Read(fd, &number, sizeof number)) return false;
        Write(fd, echo.empty() ? std::string(reinterpret_cast<const char*>(&number), sizeof number) : echo);
        return true;
      case 1: {  // SET
        if (!ReadString(fd, &key) || !ReadString(fd, &value)) return false;
        const std::lock_guard<std::mutex> lock(mu_);
        values_[key] = value;
        return true;
      }
      case 3: {  // GET
        if (!ReadString(fd, &key)) return false;
        const std::string found = ValueOf(key);
        const uint64_t size = found.size();
        Write(fd, std::string(reinterpret_cast<const char*>(&size), sizeof size) + found);
        return true;
      }
      case 6: {  // WAIT; a key that is missing stays missing
        if (!Read(fd, &count, sizeof count) || count != 1 || !ReadString(fd, &key)) return false;
        const std::lock_guard<std::mutex> lock(mu_);
        if (!wait_reply.empty()) {
          Write(fd, wait_reply);
        } else if (values_.count(key) != 0) {
          Write(fd, std::string(1, '\0'));
        } else if (waits != nullptr) {
          waits->Set();
        }
        return true;
      }
      case 12:  // CANCEL_WAIT
        Write(fd, std::string(1, '\1'));
        return true;
      default:
        return false;
    }
  }

  const UniqueFd listener_;
  int port_ = 0;
  std::mutex mu_;
  int served_ = -1;  // guarded by mu_
  std::map<std::string, std::string> values_;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST(C10dStoreTest, SetsAndGetsUnderThePrefix) {
  FakeServer server;
  C10dStore store("127.0.0.1", server.port(), "ddprun/7/", seconds(30));
  ASSERT_EQ(store.Set("rank/0", "here"), OkStatus());
  EXPECT_EQ(store.Get("rank/0", seconds(30)).value_or("none"), "here");
  EXPECT_EQ(server.ValueOf("/ddprun/7/rank/0"), "here");
  EXPECT_EQ(server.connections(), 1);
}

TEST(C10dStoreTest, ATimedOutGetNamesTheKeyAndTheStoreStaysUsable) {
  FakeServer server;
  C10dStore store("127.0.0.1", server.port(), "p/", seconds(30));
  const Status status = store.Get("missing", milliseconds(20)).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("timed out waiting for key /p/missing"));
  ASSERT_EQ(store.Set("k", "v"), OkStatus());
  EXPECT_EQ(store.Get("k", seconds(30)).value_or("none"), "v");
  EXPECT_EQ(server.connections(), 1);
}

TEST(C10dStoreTest, ReconnectsAfterALostConnection) {
  FakeServer server;
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  ASSERT_EQ(store.Set("k", "v"), OkStatus());
  ASSERT_EQ(store.Get("k", seconds(30)).value_or("none"), "v");  // the server has handled SET
  server.Hangup();
  const Status lost = store.Get("k", seconds(30)).status();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_THAT(lost.message(), HasSubstr("worker store 127.0.0.1:"));
  EXPECT_EQ(store.Get("k", seconds(30)).value_or("none"), "v");
  EXPECT_EQ(server.connections(), 2);
}

TEST(C10dStoreTest, RejectsAnotherServer) {
  FakeServer server;
  server.echo = "HTTP";
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  const Status status = store.Set("k", "v");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("is not a c10d store"));
}

// kInternal would make this worker the first cause of the failure.
TEST(C10dStoreTest, AnUnexpectedReplyIsAnErrorOfTheStore) {
  FakeServer server;
  server.wait_reply = "x";
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  const Status status = store.Get("k", seconds(30)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("unexpected reply to WAIT"));
}

TEST(C10dStoreTest, GivesUpConnectingAtItsTimeout) {
  int port = 0;
  {
    const FakeServer server;
    port = server.port();
  }
  C10dStore store("127.0.0.1", port, "", milliseconds(50));
  const Status status = store.Set("k", "v");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("refused"));
}

TEST(C10dStoreTest, CancelEndsAGetAndAllLaterCalls) {
  FakeServer server;
  Event waits;
  server.waits = &waits;
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  std::thread other([&] {
    EXPECT_TRUE(waits.WaitUntil(std::chrono::steady_clock::now() + seconds(30)));
    store.Cancel();
  });
  EXPECT_EQ(store.Get("missing", seconds(300)).status().code(), StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(store.Get("k", seconds(30)).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(store.Set("k", "v").code(), StatusCode::kCancelled);
  EXPECT_EQ(server.connections(), 1);
}

TEST(C10dStoreTest, CancelEndsAttemptsToConnect) {
  int port = 0;
  {
    const FakeServer server;
    port = server.port();
  }
  C10dStore store("127.0.0.1", port, "", seconds(300));
  std::thread other([&] { store.Cancel(); });
  EXPECT_EQ(store.Set("k", "v").code(), StatusCode::kCancelled);
  other.join();
}

TEST(C10dStoreTest, WithoutAStoreItNamesTheRemedy) {
  C10dStore store("", 0, "", seconds(1));
  EXPECT_EQ(store.Set("k", "v").code(), StatusCode::kFailedPrecondition);
}

TEST(C10dStoreTest, RejectsKeysAndValuesThatAreTooLong) {
  C10dStore store("127.0.0.1", 1, "", seconds(1));
  EXPECT_EQ(store.Set(std::string(9000, 'k'), "").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Set("k", std::string((8 << 20) + 1, 'v')).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ddprun
