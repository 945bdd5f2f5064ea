// The client against stores that are late, slow or none. What it does with a real one is in tests/contract.
#include "rendezvous/client/grpc_store.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/store.grpc.pb.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr Duration kLong = seconds(60);

// Answers a wait only once it has been asked what there is: as if what it waited for came in that moment.
class LateStore : public proto::Store::WithCallbackMethod_Barrier<proto::Store::Service> {
 public:
  grpc::Status Greet(grpc::ServerContext*, const proto::GreetRequest*, proto::GreetReply* reply) override {
    reply->set_store(7);
    return grpc::Status::OK;
  }
  grpc::Status Get(grpc::ServerContext* context, const proto::GetRequest* request,
                   proto::GetReply* reply) override {
    EXPECT_EQ(request->store(), 7u);
    if (!asked_) return UntilCancelled(context);
    reply->set_value("late");
    return grpc::Status::OK;
  }
  grpc::Status Check(grpc::ServerContext*, const proto::CheckRequest* request,
                     proto::CheckReply* reply) override {
    EXPECT_EQ(request->keys(0), "/k");
    reply->set_ready(true);
    asked_ = true;
    return grpc::Status::OK;
  }
  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext*, const proto::BarrierRequest*,
                                    proto::BarrierReply*) override {
    ++num_came_;
    return new Waiting;
  }
  grpc::Status TryGet(grpc::ServerContext*, const proto::TryGetRequest*, proto::TryGetReply* reply) override {
    reply->set_value(absl::StrCat(num_came_.load()));
    return grpc::Status::OK;
  }
  grpc::Status NumKeys(grpc::ServerContext* context, const proto::NumKeysRequest*,
                       proto::NumKeysReply*) override {
    return UntilCancelled(context);
  }

 private:
  // A barrier at which the client has been counted.
  class Waiting final : public grpc::ServerUnaryReactor {
   public:
    Waiting() { StartSendInitialMetadata(); }

   private:
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  static grpc::Status UntilCancelled(grpc::ServerContext* context) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  }

  std::atomic<bool> asked_ = false;
  std::atomic<int> num_came_ = 1;  // somebody was there before
};

std::unique_ptr<grpc::Server> Serve(grpc::Service* service, int* port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", *port), grpc::InsecureServerCredentials(), port);
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

class GrpcStoreTest : public testing::Test {
 protected:
  GrpcStoreTest() : server_(Serve(&service_, &port_)) {}
  std::unique_ptr<GrpcStore> Connect(Duration timeout) {
    auto client = GrpcStore::Connect("127.0.0.1", port_, timeout);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  LateStore service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(GrpcStoreTest, AKeyThatComesAsTheTimeIsOverWasInTime) {
  EXPECT_EQ(Connect(kLong)->Get("k", milliseconds(1)).value(), "late");
}

TEST_F(GrpcStoreTest, ABarrierThatOpensAsTheTimeIsOverHasOpened) {
  EXPECT_TRUE(Connect(kLong)->Barrier("b", 2, milliseconds(1)).ok());
}

TEST_F(GrpcStoreTest, WhoComesToABarrierIsCountedThoughTheTimeIsOver) {
  EXPECT_TRUE(Connect(kLong)->Barrier("b", 2, milliseconds(-1)).ok());
}

TEST_F(GrpcStoreTest, ABarrierThatHasNotOpenedIsLate) {
  const absl::Status late = Connect(kLong)->Barrier("b", 3, milliseconds(1));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("timed out after 1 ms waiting for barrier /b of 3"));
}

TEST_F(GrpcStoreTest, AStoreThatDoesNotAnswerIsUnavailable) {
  const auto client = Connect(seconds(4));
  const absl::Status late = client->NumKeys().status();
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(late.message()), HasSubstr(absl::StrCat("store 127.0.0.1:", port_, ", NumKeys: ")));
  EXPECT_EQ(client->Set("k", ""), late);  // dead: it will not answer twice
}

TEST_F(GrpcStoreTest, ALostStoreIsUnavailableThoughAnotherOneIsThere) {
  const auto client = Connect(kLong);
  server_->Shutdown();
  server_.reset();
  const absl::Status lost = client->Set("k", "");
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  server_ = Serve(&service_, &port_);
  EXPECT_EQ(client->Set("k", ""), lost);
}

TEST(GrpcStoreConnectTest, AnotherServerIsNoStore) {
  int port = 0;
  proto::Store::Service nothing;  // It answers all calls as a server does that does not know them.
  const auto server = Serve(&nothing, &port);
  const absl::Status none = GrpcStore::Connect("127.0.0.1", port, kLong).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr(absl::StrCat("127.0.0.1:", port)));
}

// A port that is taken, and where nobody listens.
class QuietPort {
 public:
  QuietPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~QuietPort() { ::close(fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(GrpcStoreConnectTest, NobodyIsUnavailableWithTheReason) {
  const QuietPort quiet;
  const absl::Status nobody = GrpcStore::Connect("127.0.0.1", quiet.port(), milliseconds(100)).status();
  EXPECT_EQ(nobody.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nobody.message()),
              HasSubstr(absl::StrCat("the store at 127.0.0.1:", quiet.port())));
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("refused"));
}

TEST(GrpcStoreConnectTest, TheStoreMayComeAfterItsClients) {
  const QuietPort quiet;
  int port = quiet.port();
  absl::Notification connecting;
  auto client = std::async(std::launch::async, [&connecting, port] {
    connecting.Notify();
    return GrpcStore::Connect("127.0.0.1", port, kLong);
  });
  connecting.WaitForNotification();
  LateStore service;
  const auto server = Serve(&service, &port);  // gRPC shares the port.
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(client.get().ok());
}

}  // namespace
}  // namespace ddprun
