// Tests GrpcStore with stores that answer late or not at all. The tests with a real store are in
// tests/contract.
#include "rendezvous/client/grpc_store.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
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

// A store that answers Get only after a Check, as if the key had been set at the time of the Check.
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
    ++num_arrived_;
    return new BarrierCall(sends_metadata_, barrier_answer_);
  }
  grpc::Status TryGet(grpc::ServerContext*, const proto::TryGetRequest*, proto::TryGetReply* reply) override {
    reply->set_value(absl::StrCat(num_arrived_.load()));
    return grpc::Status::OK;
  }
  grpc::Status NumKeys(grpc::ServerContext* context, const proto::NumKeysRequest*,
                       proto::NumKeysReply*) override {
    return UntilCancelled(context);
  }

  // AnswerBarriersWith and OmitInitialMetadata must be called before the first Barrier.
  void AnswerBarriersWith(const grpc::Status& status) { barrier_answer_ = status; }
  // Makes Barrier send no initial metadata while a caller waits, like stores of earlier versions.
  void OmitInitialMetadata() { sends_metadata_ = false; }

 private:
  // A Barrier call. It ends immediately with `answer` if `answer` is set. Otherwise it waits until the caller
  // cancels.
  class BarrierCall final : public grpc::ServerUnaryReactor {
   public:
    BarrierCall(bool sends_metadata, const std::optional<grpc::Status>& answer) {
      if (answer) {
        Finish(*answer);
      } else if (sends_metadata) {
        StartSendInitialMetadata();
      }
    }

   private:
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  static grpc::Status UntilCancelled(grpc::ServerContext* context) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  }

  std::atomic<bool> asked_ = false;
  std::atomic<int> num_arrived_ = 1;  // the barrier has already counted one caller when a test begins
  bool sends_metadata_ = true;
  std::optional<grpc::Status> barrier_answer_;
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

TEST_F(GrpcStoreTest, GetReturnsAValueThatIsSetAtTheTimeout) {
  EXPECT_EQ(Connect(kLong)->Get("k", milliseconds(1)).value(), "late");
}

TEST_F(GrpcStoreTest, ABarrierThatOpensAtTheTimeoutSucceeds) {
  EXPECT_TRUE(Connect(kLong)->Barrier("b", 2, milliseconds(1)).ok());
}

TEST_F(GrpcStoreTest, ABarrierCountsItsCallerEvenIfTheTimeoutHasPassed) {
  EXPECT_TRUE(Connect(kLong)->Barrier("b", 2, milliseconds(-1)).ok());
}

TEST_F(GrpcStoreTest, ABarrierThatHasNotOpenedTimesOut) {
  const absl::Status late = Connect(kLong)->Barrier("b", 3, milliseconds(1));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("timed out after 1 ms waiting for barrier /b of 3"));
}

// The deadline of the RPC may expire before the client's own timer.
TEST_F(GrpcStoreTest, AClientStaysUsableAfterTheRpcOfABarrierExpires) {
  service_.AnswerBarriersWith({grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"});
  const auto client = Connect(kLong);
  EXPECT_EQ(client->Barrier("b", 9, kLong).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(client->Barrier("b", 3, kLong).ok());  // the count is now 3
  EXPECT_TRUE(client->TryGet("k").ok());
}

TEST_F(GrpcStoreTest, AnErrorThatArrivesAfterTheTimeoutOfABarrierIsReported) {
  service_.AnswerBarriersWith({grpc::StatusCode::RESOURCE_EXHAUSTED, "the store is full"});
  const absl::Status full = Connect(kLong)->Barrier("b", 9, milliseconds(-1));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("the store is full"));
}

TEST_F(GrpcStoreTest, ABarrierThatTheStoreCancelsIsUnavailable) {
  service_.AnswerBarriersWith({grpc::StatusCode::CANCELLED, "the store is shutting down"});
  const auto client = Connect(kLong);
  const absl::Status lost = client->Barrier("b", 9, kLong);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
  EXPECT_EQ(client->Set("k", ""), lost);
}

TEST_F(GrpcStoreTest, AClientStaysUsableAfterABarrierWithoutInitialMetadata) {
  service_.OmitInitialMetadata();
  const auto client = Connect(kLong);
  const absl::Status late = client->Barrier("b", 9, milliseconds(1));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_TRUE(client->Barrier("b", 3, milliseconds(1)).ok());  // the count is now 3
}

TEST_F(GrpcStoreTest, AStoreThatDoesNotAnswerIsUnavailable) {
  const auto client = Connect(seconds(4));
  const absl::Status late = client->NumKeys().status();
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(late.message()), HasSubstr(absl::StrCat("store 127.0.0.1:", port_, ", NumKeys: ")));
  EXPECT_EQ(client->Set("k", ""), late);  // the client is unusable
}

TEST_F(GrpcStoreTest, ALostStoreStaysUnavailableAfterItsServerRestarts) {
  const auto client = Connect(kLong);
  server_->Shutdown();
  server_.reset();
  const absl::Status lost = client->Set("k", "");
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  server_ = Serve(&service_, &port_);
  EXPECT_EQ(client->Set("k", ""), lost);
}

TEST(GrpcStoreConnectTest, AServerWithoutAStoreIsAnError) {
  int port = 0;
  proto::Store::Service unimplemented;  // answers all calls with UNIMPLEMENTED
  const auto server = Serve(&unimplemented, &port);
  const absl::Status status = GrpcStore::Connect("127.0.0.1", port, kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("127.0.0.1:", port)));
}

// Reserves a port with a socket that is bound but does not listen.
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

TEST(GrpcStoreConnectTest, ARefusedConnectionIsUnavailable) {
  const QuietPort quiet;
  const absl::Status refused = GrpcStore::Connect("127.0.0.1", quiet.port(), milliseconds(100)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("the store at 127.0.0.1:", quiet.port())));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("refused"));
}

TEST(GrpcStoreConnectTest, TheStoreMayStartAfterItsClients) {
  const QuietPort quiet;
  int port = quiet.port();
  absl::Notification connecting;
  auto client = std::async(std::launch::async, [&connecting, port] {
    connecting.Notify();
    return GrpcStore::Connect("127.0.0.1", port, kLong);
  });
  connecting.WaitForNotification();
  LateStore service;
  const auto server = Serve(&service, &port);  // gRPC also sets SO_REUSEPORT
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(client.get().ok());
}

}  // namespace
}  // namespace ddprun
