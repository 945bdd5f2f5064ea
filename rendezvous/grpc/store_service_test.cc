// Tests StoreService without GrpcPort. The io_context runs only when a test runs it, so the order of events
// is fixed.

#include "rendezvous/grpc/store_service.h"

#include <grpcpp/grpcpp.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio/executor_work_guard.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/store_request.h"
#include "rendezvous/core/store_hub.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kLong(60);
constexpr uint64_t kMaxBytesOfCalls = 4 << 20;

// The result of a call.
template <typename Reply>
struct Answer {
  grpc::Status status;
  Reply reply;
};

class StoreServiceTest : public testing::Test {
 protected:
  using Stub = proto::Store::Stub;
  template <typename Request, typename Reply>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  StoreServiceTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxStoreMessageBytes);
    server_ = builder.BuildAndStart();
    stub_ = proto::Store::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials()));
    service_.Use(hub_.get());
  }
  ~StoreServiceTest() override {
    service_.EndAll("the test is over");
    server_->Shutdown();
  }

  // Starts a call on another thread. `context` must outlive the call.
  template <typename Request, typename Reply>
  std::future<Answer<Reply>> Start(Method<Request, Reply> method, Request request,
                                   grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kLong);
    return std::async(std::launch::async, [this, method, request = std::move(request), &context] {
      Answer<Reply> answer;
      answer.status = (stub_.get()->*method)(&context, request, &answer.reply);
      return answer;
    });
  }
  // Runs the io_context until the call has ended.
  template <typename Request, typename Reply>
  Answer<Reply> Ask(Method<Request, Reply> method, const Request& request) {
    grpc::ClientContext context;
    auto answer = Start(method, request, context);
    while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      io_.run_one_for(std::chrono::milliseconds(1));
    }
    return answer.get();
  }
  bool RunUntilWaiting(int64_t n) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (hub_->store().NumWaiting() != n && std::chrono::steady_clock::now() < deadline) {
      io_.run_one_for(std::chrono::seconds(1));
    }
    return hub_->store().NumWaiting() == n;
  }
  static proto::WaitRequest WaitFor(const std::string& key) {
    proto::WaitRequest request;
    request.add_keys(key);
    return request;
  }
  void SetHere(absl::string_view key) {
    ASSERT_TRUE(hub_->store().Set(key, "", hub_->woken()).ok());
    hub_->Wake();
  }

  boost::asio::io_context io_;
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(io_);
  std::unique_ptr<StoreHub> hub_ = std::make_unique<StoreHub>(KvLimits{.max_bytes = 10'000});
  StoreService service_{io_, kMaxBytesOfCalls};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Stub> stub_;
};

// See "Errors that every call may return" in proto/store.proto.
TEST_F(StoreServiceTest, InvalidRequestsAreRefused) {
  const auto expect_refused = [](const grpc::Status& status, const std::string& text) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << text;
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  };
  expect_refused(Ask(&Stub::Set, proto::SetRequest()).status, "Set: a key is empty");
  expect_refused(Ask(&Stub::Append, proto::AppendRequest()).status, "Append: a key is empty");
  expect_refused(Ask(&Stub::CompareSet, proto::CompareSetRequest()).status, "CompareSet: a key is empty");
  expect_refused(Ask(&Stub::Add, proto::AddRequest()).status, "Add: a key is empty");
  expect_refused(Ask(&Stub::Get, proto::GetRequest()).status, "Get: a key is empty");
  expect_refused(Ask(&Stub::TryGet, proto::TryGetRequest()).status, "TryGet: a key is empty");
  expect_refused(Ask(&Stub::DeleteKey, proto::DeleteKeyRequest()).status, "DeleteKey: a key is empty");
  expect_refused(Ask(&Stub::QueuePush, proto::QueuePushRequest()).status, "QueuePush: a key is empty");
  expect_refused(Ask(&Stub::QueuePop, proto::QueuePopRequest()).status, "QueuePop: a key is empty");
  expect_refused(Ask(&Stub::QueueLen, proto::QueueLenRequest()).status, "QueueLen: a key is empty");
  expect_refused(Ask(&Stub::Barrier, proto::BarrierRequest()).status, "Barrier: a key is empty");
  expect_refused(Ask(&Stub::Wait, WaitFor("")).status, "Wait: a key is empty");
  expect_refused(Ask(&Stub::Wait, WaitFor(std::string(9000, 'k'))).status, "Wait: a key has 9000 bytes");
  proto::BarrierRequest barrier;
  barrier.set_key("b");
  expect_refused(Ask(&Stub::Barrier, barrier).status, "Barrier: the world size is 0");
  proto::SetRequest set;
  set.set_key("k");
  set.set_value(std::string((8 << 20) + 1, 'v'));
  expect_refused(Ask(&Stub::Set, set).status, "Set: a value has 8388609 bytes");
  proto::MultiSetRequest multi_set;
  multi_set.add_pairs()->set_key("k");
  multi_set.add_pairs();
  expect_refused(Ask(&Stub::MultiSet, multi_set).status, "MultiSet: a key is empty");
  proto::CheckRequest check;
  for (int i = 0; i <= 131'072; ++i) check.add_keys("k");
  expect_refused(Ask(&Stub::Check, check).status, "Check: the request has 131073 keys");
  EXPECT_EQ(hub_->store().NumKeys(), 0);
}

TEST_F(StoreServiceTest, AMessageBeyondTheLimitOfTheServerIsRefused) {
  proto::SetRequest set;
  set.set_key("k");
  set.set_value(std::string(kMaxStoreMessageBytes, 'v'));
  EXPECT_EQ(Ask(&Stub::Set, set).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(StoreServiceTest, ErrorsOfTheStoreKeepTheirCode) {
  proto::SetRequest set;
  set.set_key("k");
  set.set_value("text");
  ASSERT_TRUE(Ask(&Stub::Set, set).status.ok());
  proto::AddRequest add;
  add.set_key("k");
  EXPECT_EQ(Ask(&Stub::Add, add).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  set.set_value(std::string(10'000, 'v'));
  const grpc::Status full = Ask(&Stub::Set, set).status;
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_message(), HasSubstr("of 10000 bytes are used"));
  EXPECT_EQ(hub_->store().Get("k"), "text");
}

// Most keys of the request exist, so the store itself charges little for the wait.
TEST_F(StoreServiceTest, TheMemoryOfWaitingCallsIsLimited) {
  const std::string key(8000, 'k');
  SetHere(key);
  proto::WaitRequest large;
  for (int i = 0; i < 200; ++i) large.add_keys(key);
  large.add_keys("missing");
  grpc::ClientContext contexts[2];
  std::vector<std::future<Answer<proto::WaitReply>>> waits;
  for (grpc::ClientContext& context : contexts) waits.push_back(Start(&Stub::Wait, large, context));
  ASSERT_TRUE(RunUntilWaiting(2));
  const grpc::Status refused = Ask(&Stub::Wait, large).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("of 4194304 bytes, and a request needs"));
  // Other calls are served. When the waits have ended, their memory is available again.
  EXPECT_TRUE(Ask(&Stub::NumKeys, proto::NumKeysRequest()).status.ok());
  SetHere("missing");
  for (auto& wait : waits) EXPECT_TRUE(wait.get().status.ok());
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (!Ask(&Stub::Wait, large).status.ok()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST_F(StoreServiceTest, ACallWithoutRoomForItsReplyIsRefusedAndChangesNothing) {
  StoreHub hub;
  const std::string value(5 << 20, 'v');
  ASSERT_TRUE(hub.store().Set("k", value, hub.woken()).ok());
  ASSERT_TRUE(hub.store().QueuePush("q", value, hub.woken()).ok());
  service_.Use(&hub);
  const auto expect_refused = [](const grpc::Status& status, const std::string& text) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << text;
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  };
  proto::GetRequest get;
  get.set_key("k");
  expect_refused(Ask(&Stub::Get, get).status, "Get: calls hold");
  proto::TryGetRequest try_get;
  try_get.set_key("k");
  expect_refused(Ask(&Stub::TryGet, try_get).status, "TryGet: calls hold");
  proto::MultiGetRequest multi_get;
  multi_get.add_keys("k");
  expect_refused(Ask(&Stub::MultiGet, multi_get).status, "MultiGet: calls hold");
  proto::CompareSetRequest compare_set;
  compare_set.set_key("k");
  expect_refused(Ask(&Stub::CompareSet, compare_set).status, "CompareSet: calls hold");
  proto::QueuePopRequest pop;
  pop.set_name("q");
  expect_refused(Ask(&Stub::QueuePop, pop).status, "QueuePop: calls hold");
  EXPECT_EQ(hub.store().QueueLen("q"), 1);
  service_.Use(nullptr);
}

TEST_F(StoreServiceTest, TryGetDistinguishesAnEmptyValueFromAnAbsentKey) {
  proto::TryGetRequest request;
  request.set_key("k");
  EXPECT_FALSE(Ask(&Stub::TryGet, request).reply.has_value());
  SetHere("k");
  EXPECT_TRUE(Ask(&Stub::TryGet, request).reply.has_value());
}

TEST_F(StoreServiceTest, ACallForAnotherStoreIsRefused) {
  const uint64_t first = Ask(&Stub::Greet, proto::GreetRequest()).reply.store();
  EXPECT_NE(first, 0u);
  proto::AddRequest add;
  add.set_key("n");
  add.set_delta(1);
  add.set_store(first);
  EXPECT_EQ(Ask(&Stub::Add, add).reply.sum(), 1);
  StoreHub next;
  service_.Use(&next);
  const grpc::Status stale = Ask(&Stub::Add, add).status;
  EXPECT_EQ(stale.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(stale.error_message(), HasSubstr("earlier round"));
  EXPECT_NE(Ask(&Stub::Greet, proto::GreetRequest()).reply.store(), first);
  add.set_store(0);
  EXPECT_EQ(Ask(&Stub::Add, add).reply.sum(), 1);
  service_.Use(nullptr);
  EXPECT_EQ(Ask(&Stub::Add, add).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StoreServiceTest, ACancelledWaitIsDropped) {
  grpc::ClientContext context, other_context;
  auto cancelled = Start(&Stub::Wait, WaitFor("k"), context);
  auto other = Start(&Stub::Wait, WaitFor("k"), other_context);
  ASSERT_TRUE(RunUntilWaiting(2));
  context.TryCancel();
  EXPECT_EQ(cancelled.get().status.error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(RunUntilWaiting(1));
  SetHere("k");
  EXPECT_TRUE(other.get().status.ok());
  EXPECT_EQ(hub_->store().NumWaiting(), 0);
}

TEST_F(StoreServiceTest, AKeySetDuringACancellationEndsTheWaitOnce) {
  grpc::ClientContext context;
  auto cancelled = Start(&Stub::Wait, WaitFor("k"), context);
  ASSERT_TRUE(RunUntilWaiting(1));
  context.TryCancel();
  EXPECT_FALSE(cancelled.get().status.ok());
  SetHere("k");  // may run before or after OnCancel
  EXPECT_EQ(hub_->store().NumWaiting(), 0);
  service_.EndAll("enough");
  server_->Shutdown();  // returns when gRPC has finished the call
  io_.poll();           // the handler posted by OnCancel does nothing
}

TEST_F(StoreServiceTest, DestroyingAStoreEndsItsWaits) {
  grpc::ClientContext context;
  auto waited = Start(&Stub::Wait, WaitFor("k"), context);
  ASSERT_TRUE(RunUntilWaiting(1));
  service_.Use(nullptr);
  hub_.reset();
  EXPECT_EQ(waited.get().status.error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(StoreServiceTest, EndAllAnswersCallsWithoutTheIoContext) {
  grpc::ClientContext waiting_context, posted_context;
  auto waiting = Start(&Stub::Wait, WaitFor("k"), waiting_context);
  ASSERT_TRUE(RunUntilWaiting(1));
  auto posted = Start(&Stub::Wait, WaitFor("k"), posted_context);
  service_.EndAll("enough");
  for (auto* call : {&waiting, &posted}) {
    const grpc::Status ended = call->get().status;
    EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(ended.error_message(), "enough");
  }
  EXPECT_EQ(Ask(&Stub::Greet, proto::GreetRequest()).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  SetHere("k");  // answered calls are not answered again
  hub_.reset();
  service_.Use(nullptr);
}

}  // namespace
}  // namespace ddprun
