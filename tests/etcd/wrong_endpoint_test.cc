// The register on etcd at endpoints that are not etcd.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/port_listener.h"
#include "net/testing/io_thread.h"
#include "rendezvous/c10d/c10d_server.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/testing/etcd_caller.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class WrongEndpointTest : public testing::Test {
 protected:
  ~WrongEndpointTest() override {
    thread_.Run([this] {
      listener_ = nullptr;
      for (const int fd : connections_) close(fd);
    });
  }

  // Listens, and calls `serve` with each connection. Returns the endpoint.
  std::string Listen(std::function<void(int fd)> serve) {
    const int port = thread_.Run([&] {
      PortHandlers handlers = {};
      handlers.c10d = std::move(serve);
      listener_ = PortListener::Open(thread_.io(), "127.0.0.1", 0, std::move(handlers)).value();
      return listener_->port();
    });
    return absl::StrCat("127.0.0.1:", port);
  }
  // A server that sends `bytes` at once and closes nothing.
  std::string Speak(const std::string& bytes) {
    return Listen([this, bytes](int fd) {
      connections_.push_back(fd);
      EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
    });
  }
  // The errors of a read and of a swap, whose limit is `limit`.
  static std::vector<absl::Status> Errors(const std::vector<std::string>& endpoints, Duration limit) {
    EtcdCaller caller({.endpoints = endpoints, .run_id = "job"});
    return {caller.Read(limit).status(), caller.Swap({}, "l1", "c1", limit).status()};
  }
  static void ExpectErrors(const std::string& endpoint, Duration limit, absl::StatusCode code,
                           const std::string& text) {
    const TimePoint begin = std::chrono::steady_clock::now();
    for (const absl::Status& status : Errors({endpoint}, limit)) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("etcd at " + endpoint + ": "));
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  }

  IoThread thread_;
  std::unique_ptr<PortListener> listener_;
  std::vector<int> connections_;
};

TEST_F(WrongEndpointTest, ACoordinator) {
  auto host = thread_.Run([this] {
    return CoordinatorHost::Open(thread_.io(), "127.0.0.1", 0,
                                 [](absl::string_view, absl::string_view, absl::string_view) {})
        .value();
  });
  ExpectErrors(absl::StrCat("127.0.0.1:", host->port()), seconds(60), absl::StatusCode::kFailedPrecondition,
               "a gRPC server answers there that does not have etcd's v3 API");
  thread_.Run([&] { host = nullptr; });
}

TEST_F(WrongEndpointTest, AnHttpServer) {
  ExpectErrors(Speak("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), seconds(60),
               absl::StatusCode::kFailedPrecondition, "an HTTP/1 server answers there");
}

TEST_F(WrongEndpointTest, AServerThatDoesNotAnswer) {
  ExpectErrors(Speak(""), milliseconds(500), absl::StatusCode::kDeadlineExceeded,
               "check that the process there is etcd");
}

TEST_F(WrongEndpointTest, Garbage) {
  ExpectErrors(Speak(std::string(1000, '\x7f')), milliseconds(500), absl::StatusCode::kUnavailable, "");
}

TEST_F(WrongEndpointTest, AStoreOfPyTorch) {
  auto store = thread_.Run([this] { return std::make_unique<C10dServer>(thread_.io()); });
  ExpectErrors(Listen([&](int fd) { store->Serve(fd); }), milliseconds(500), absl::StatusCode::kUnavailable,
               "check that etcd runs there");
  thread_.Run([&] {
    listener_ = nullptr;
    store = nullptr;
  });
}

TEST_F(WrongEndpointTest, AllEndpointsAreNamed) {
  const std::string http = Speak("HTTP/1.1 400 Bad Request\r\n\r\n");
  for (const absl::Status& status : Errors({"127.0.0.1:1", http}, milliseconds(500))) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("at 127.0.0.1:1: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("at " + http + ": an HTTP/1 server"));
  }
}

}  // namespace
}  // namespace ddprun
