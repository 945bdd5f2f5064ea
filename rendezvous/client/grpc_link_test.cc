#include "rendezvous/client/grpc_link.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rendezvous.grpc.pb.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Stream = grpc::ServerReaderWriter<proto::CoordinatorMessage, proto::AgentMessage>;

constexpr Duration kLimit = seconds(20);

void Welcome(Stream* stream, int heartbeat_ms) {
  proto::CoordinatorMessage message;
  message.mutable_welcome()->set_heartbeat_ms(heartbeat_ms);
  stream->Write(message);
}
void Write(Stream* stream, const std::string& text) {
  proto::CoordinatorMessage message;
  message.mutable_waiting()->set_text(text);
  stream->Write(message);
}

// A coordinator on its own port that runs the same scene for every agent.
class FakeCoordinator final : public proto::Coordinator::Service {
 public:
  using Scene = std::function<grpc::Status(Stream*)>;

  explicit FakeCoordinator(Scene scene) : scene_(std::move(scene)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override {
    Break();
    server_->Wait();
  }

  int port() const { return port_; }
  // Returns the next message of the agent in short form, or "end" at the end of the stream.
  static std::string Read(Stream* stream) {
    proto::AgentMessage message;
    if (!stream->Read(&message)) return "end";
    switch (message.kind_case()) {
      case proto::AgentMessage::kJoin:
        return absl::StrCat("join ", message.join().node_id());
      case proto::AgentMessage::kHeartbeat:
        return message.heartbeat().has_step() ? absl::StrCat("heartbeat ", message.heartbeat().step())
                                              : "heartbeat";
      case proto::AgentMessage::kLeave:
        return absl::StrCat("leave ", message.leave().reason());
      default:
        return "?";
    }
  }
  // Records a string in a scene for the test thread.
  void Note(std::string word) {
    absl::MutexLock lock(&mutex_);
    notes_.push_back(std::move(word));
  }
  // Returns the notes once there are `count` of them, or after 20 s.
  std::vector<std::string> AwaitNotes(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return notes_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::FromChrono(kLimit));
    return notes_;
  }
  // Cuts all connections.
  void Break() { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  grpc::Status Attend(grpc::ServerContext*, Stream* stream) override {
    stream->SendInitialMetadata();
    return scene_(stream);
  }

  const Scene scene_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex mutex_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

// The agent's side: records the callbacks of the link.
class GrpcLinkTest : public ::testing::Test {
 protected:
  void Connect(int port, Duration welcome_limit = kLimit, Duration heartbeat_interval = {}) {
    link_ = MakeGrpcLink(io_, "127.0.0.1", port, welcome_limit);
    link_->Start({.on_open = [this] { ++opened_; },
                  .on_message =
                      [this](const proto::CoordinatorMessage& message) {
                        told_.push_back(message.has_waiting()   ? message.waiting().text()
                                        : message.has_welcome() ? "welcome"
                                                                : "heard");
                      },
                  .on_lost =
                      [this](const absl::Status& why) {
                        EXPECT_TRUE(absl::IsUnavailable(why)) << why;
                        lost_.push_back(std::string(why.message()));
                      },
                  .heartbeat =
                      [this](proto::Heartbeat& heartbeat) {
                        heartbeat.set_step(steps_++);
                        filled_.push_back(std::chrono::steady_clock::now());
                      },
                  .on_answered = [this](TimePoint sent) { answered_.push_back(sent); },
                  .heartbeat_interval = heartbeat_interval});
    proto::AgentMessage message;
    message.mutable_join()->set_node_id("n0");
    link_->Send(message);
  }
  void Leave(const std::string& reason) {
    proto::AgentMessage message;
    message.mutable_leave()->set_reason(reason);
    link_->Send(message);
  }
  // Runs the io_context until `done` returns true, for at most 20 s.
  bool RunUntil(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    const auto work = boost::asio::make_work_guard(io_);
    while (!done()) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= Duration::zero()) return false;
      io_.restart();
      io_.run_one_for(left);
    }
    return true;
  }
  bool RunUntilLost() {
    return RunUntil([this] { return !lost_.empty(); });
  }

  boost::asio::io_context io_;
  std::unique_ptr<CoordinatorLink> link_;
  std::vector<std::string> told_;
  std::vector<std::string> lost_;
  int opened_ = 0;
  int64_t steps_ = 0;
  std::vector<TimePoint> filled_;    // when each heartbeat was filled in
  std::vector<TimePoint> answered_;  // when each answered heartbeat was sent
};

TEST_F(GrpcLinkTest, CarriesMessagesBothWaysInOrder) {
  FakeCoordinator coordinator([&](Stream* stream) {
    coordinator.Note(FakeCoordinator::Read(stream));
    for (const char* text : {"one", "two", "three"}) Write(stream, text);
    coordinator.Note(FakeCoordinator::Read(stream));
    coordinator.Note(FakeCoordinator::Read(stream));
    coordinator.Note(FakeCoordinator::Read(stream));
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntil([&] { return told_.size() == 3; }));
  EXPECT_THAT(told_, ElementsAre("one", "two", "three"));
  Leave("first");
  Leave("second");
  link_->Close();  // messages sent before still arrive
  EXPECT_THAT(coordinator.AwaitNotes(4), ElementsAre("join n0", "leave first", "leave second", "end"));
  link_.reset();
  io_.restart();
  io_.poll();
  EXPECT_TRUE(lost_.empty());
}

TEST_F(GrpcLinkTest, ClosingDoesNotNeedTheIoContext) {
  FakeCoordinator coordinator([&](Stream* stream) {
    FakeCoordinator::Read(stream);
    for (int i = 0; i < 100; ++i) Write(stream, "never handled");
    while (FakeCoordinator::Read(stream) != "end") {
    }
    coordinator.Note("end");
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntil([&] { return !told_.empty(); }));
  Leave("a signal came");
  link_.reset();
  EXPECT_THAT(coordinator.AwaitNotes(1), ElementsAre("end"));
}

TEST_F(GrpcLinkTest, SendsHeartbeatsOnceWelcomed) {
  FakeCoordinator coordinator([&](Stream* stream) {
    coordinator.Note(FakeCoordinator::Read(stream));
    Welcome(stream, 1000);  // long enough for slow machines: five silent intervals lose the link
    for (int i = 0; i < 2; ++i) {
      coordinator.Note(FakeCoordinator::Read(stream));
      proto::CoordinatorMessage heard;
      heard.mutable_heard();
      stream->Write(heard);
    }
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(coordinator.AwaitNotes(3), ElementsAre("join n0", "heartbeat 0", "heartbeat 1"));
  EXPECT_THAT(told_, ElementsAre("welcome", "heard", "heard"));
  // Each answer is reported with the time of its own heartbeat.
  ASSERT_THAT(answered_, SizeIs(2));
  EXPECT_GE(answered_[0], filled_[0]);
  EXPECT_LT(answered_[0], filled_[1]);
  EXPECT_GE(answered_[1], filled_[1]);
  EXPECT_THAT(lost_, ElementsAre("it hung up"));
}

TEST_F(GrpcLinkTest, SendsHeartbeatsBeforeASlowWelcome) {
  FakeCoordinator coordinator([&](Stream* stream) {
    coordinator.Note(FakeCoordinator::Read(stream));
    coordinator.Note(FakeCoordinator::Read(stream));
    Welcome(stream, 10);  // the same interval: heartbeats continue
    coordinator.Note(FakeCoordinator::Read(stream));
    return grpc::Status::OK;
  });
  Connect(coordinator.port(), kLimit, milliseconds(10));
  ASSERT_TRUE(RunUntilLost());
  EXPECT_EQ(opened_, 1);
  EXPECT_THAT(coordinator.AwaitNotes(3), ElementsAre("join n0", "heartbeat 0", "heartbeat 1"));
}

TEST_F(GrpcLinkTest, OtherMessagesDoNotAnswerAHeartbeat) {
  FakeCoordinator coordinator([&](Stream* stream) {
    FakeCoordinator::Read(stream);
    Welcome(stream, 1000);
    FakeCoordinator::Read(stream);
    Write(stream, "not heard");
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(told_, ElementsAre("welcome", "not heard"));
  EXPECT_THAT(answered_, SizeIs(0));
}

TEST_F(GrpcLinkTest, ASilentCoordinatorIsLost) {
  FakeCoordinator coordinator([&](Stream* stream) {
    Welcome(stream, 5);
    while (FakeCoordinator::Read(stream) != "end") {
    }
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(lost_, ElementsAre("it has not answered for 25 ms"));
}

TEST_F(GrpcLinkTest, ACoordinatorThatDoesNotAnswerTheJoinIsLost) {
  FakeCoordinator coordinator([&](Stream* stream) {
    while (FakeCoordinator::Read(stream) != "end") {
    }
    return grpc::Status::OK;
  });
  Connect(coordinator.port(), milliseconds(10));
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(lost_, ElementsAre("it did not answer the join within 10 ms"));
}

TEST_F(GrpcLinkTest, ABrokenConnectionIsALostCoordinator) {
  FakeCoordinator coordinator([&](Stream* stream) {
    FakeCoordinator::Read(stream);
    Write(stream, "hello");
    FakeCoordinator::Read(stream);
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntil([&] { return !told_.empty(); }));
  coordinator.Break();
  ASSERT_TRUE(RunUntilLost());
  Leave("too late");  // is ignored
}

TEST_F(GrpcLinkTest, ARefusedConnectionIsALostCoordinator) {
  int port = 0;
  {
    FakeCoordinator coordinator([](Stream*) { return grpc::Status::OK; });
    port = coordinator.port();
  }
  Connect(port);
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(lost_[0], HasSubstr("failed to connect"));
}

TEST_F(GrpcLinkTest, InvokesNoHandlerAfterClose) {
  FakeCoordinator coordinator([&](Stream* stream) {
    FakeCoordinator::Read(stream);
    for (int i = 0; i < 10; ++i) Write(stream, "more");
    coordinator.Note("said");
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  coordinator.AwaitNotes(1);
  link_->Close();
  io_.restart();
  io_.run_for(milliseconds(1));
  link_.reset();
  io_.restart();
  io_.poll();
  EXPECT_TRUE(told_.empty());
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace ddprun
