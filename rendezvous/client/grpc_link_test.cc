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

// A coordinator on its own port. Runs the same script for every agent.
class FakeCoordinator final : public proto::Coordinator::Service {
 public:
  using Script = std::function<grpc::Status(Stream*)>;

  explicit FakeCoordinator(Script script) : script_(std::move(script)) {
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
  // Returns the next message from the agent as a short string, or "end" at the end of the stream.
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
  // Records a string for the test thread. Called by scripts.
  void Note(std::string word) {
    absl::MutexLock lock(&mutex_);
    notes_.push_back(std::move(word));
  }
  // Waits until there are `count` notes, for at most 20 s. Returns all notes.
  std::vector<std::string> AwaitNotes(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return notes_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::FromChrono(kLimit));
    return notes_;
  }
  // Closes all connections.
  void Break() { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  grpc::Status Attend(grpc::ServerContext*, Stream* stream) override {
    stream->SendInitialMetadata();
    return script_(stream);
  }

  const Script script_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex mutex_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

// The fixture is the agent: it records the callbacks of its link.
class GrpcLinkTest : public ::testing::Test {
 protected:
  void Connect(int port, Duration welcome_limit = kLimit, Duration heartbeat_interval = {}) {
    link_ = MakeGrpcLink(io_, "127.0.0.1", port, welcome_limit);
    link_->Start({.on_open = [this] { ++opened_; },
                  .on_message =
                      [this](const proto::CoordinatorMessage& message) {
                        received_.push_back(message.has_waiting()   ? message.waiting().text()
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
                  .on_answered = [this](TimePoint sent,
                                        std::optional<Duration> /*lead_left*/) { answered_.push_back(sent); },
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
  std::vector<std::string> received_;
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
  ASSERT_TRUE(RunUntil([&] { return received_.size() == 3; }));
  EXPECT_THAT(received_, ElementsAre("one", "two", "three"));
  Leave("first");
  Leave("second");
  link_->Close();  // sends the queued messages
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
  ASSERT_TRUE(RunUntil([&] { return !received_.empty(); }));
  Leave("SIGTERM");
  link_.reset();
  EXPECT_THAT(coordinator.AwaitNotes(1), ElementsAre("end"));
}

TEST_F(GrpcLinkTest, SendsHeartbeatsAfterTheWelcome) {
  FakeCoordinator coordinator([&](Stream* stream) {
    coordinator.Note(FakeCoordinator::Read(stream));
    Welcome(stream, 1000);  // long enough for slow machines: the link is lost after five silent intervals
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
  EXPECT_THAT(received_, ElementsAre("welcome", "heard", "heard"));
  // Each answer is reported with the send time of the heartbeat that it answers.
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
    Welcome(stream, 10);  // does not change the interval, so heartbeats continue
    coordinator.Note(FakeCoordinator::Read(stream));
    return grpc::Status::OK;
  });
  Connect(coordinator.port(), kLimit, milliseconds(10));
  ASSERT_TRUE(RunUntilLost());
  EXPECT_EQ(opened_, 1);
  EXPECT_THAT(coordinator.AwaitNotes(3), ElementsAre("join n0", "heartbeat 0", "heartbeat 1"));
}

// The initial metadata and a message that follows it at once arrive together, and gRPC may report the message first.
TEST_F(GrpcLinkTest, IsOpenBeforeTheFirstMessage) {
  FakeCoordinator coordinator([&](Stream* stream) {
    Welcome(stream, 1000);
    FakeCoordinator::Read(stream);
    return grpc::Status::OK;
  });
  for (int link = 1; link <= 50; ++link) {
    Connect(coordinator.port());
    ASSERT_TRUE(RunUntil([&] { return !received_.empty(); }));
    EXPECT_EQ(opened_, link);
    received_.clear();
  }
}

TEST_F(GrpcLinkTest, OnlyHeardAnswersAHeartbeat) {
  FakeCoordinator coordinator([&](Stream* stream) {
    FakeCoordinator::Read(stream);
    Welcome(stream, 1000);
    FakeCoordinator::Read(stream);
    Write(stream, "not heard");
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(received_, ElementsAre("welcome", "not heard"));
  EXPECT_THAT(answered_, SizeIs(0));
}

TEST_F(GrpcLinkTest, TheLinkIsLostIfTheCoordinatorIsSilent) {
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

TEST_F(GrpcLinkTest, TheLinkIsLostIfTheJoinIsNotAnswered) {
  FakeCoordinator coordinator([&](Stream* stream) {
    while (FakeCoordinator::Read(stream) != "end") {
    }
    return grpc::Status::OK;
  });
  Connect(coordinator.port(), milliseconds(10));
  ASSERT_TRUE(RunUntilLost());
  EXPECT_THAT(lost_, ElementsAre("it did not answer the join within 10 ms"));
}

TEST_F(GrpcLinkTest, TheLinkIsLostIfTheConnectionBreaks) {
  FakeCoordinator coordinator([&](Stream* stream) {
    FakeCoordinator::Read(stream);
    Write(stream, "hello");
    FakeCoordinator::Read(stream);
    return grpc::Status::OK;
  });
  Connect(coordinator.port());
  ASSERT_TRUE(RunUntil([&] { return !received_.empty(); }));
  coordinator.Break();
  ASSERT_TRUE(RunUntilLost());
  Leave("too late");  // ignored
}

TEST_F(GrpcLinkTest, TheLinkIsLostIfTheConnectionIsRefused) {
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
    for (int i = 0; i < 10; ++i) Write(stream, "never handled");
    coordinator.Note("written");
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
  EXPECT_TRUE(received_.empty());
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace ddprun
