#include "rendezvous/grpc/control_service.h"

#include <grpcpp/grpcpp.h>

#include <future>
#include <memory>
#include <string>

#include "base/wake_timer.h"
#include "boost/asio/executor_work_guard.hpp"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

class ControlServiceTest : public ::testing::Test {
 protected:
  ControlServiceTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~ControlServiceTest() override {
    service_.EndAll();
    server_->Shutdown();
  }

  std::future<grpc::Status> Stop() {
    return std::async(std::launch::async, [this] {
      const auto stub = proto::Control::NewStub(
          grpc::CreateChannel("127.0.0.1:" + std::to_string(port_), grpc::InsecureChannelCredentials()));
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      proto::StopReply reply;
      return stub->Stop(&context, {}, &reply);
    });
  }

  boost::asio::io_context io_;
  Coordinator coordinator_{std::make_unique<AsioWakeTimer>(io_),
                           [](absl::string_view, absl::string_view, absl::string_view) {}};
  ControlService service_{io_, coordinator_.weak()};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ControlServiceTest, TheCoordinatorAnswersOnItsThread) {
  const auto work = boost::asio::make_work_guard(io_);
  std::future<grpc::Status> stopped = Stop();
  EXPECT_EQ(io_.run_one_for(std::chrono::seconds(20)), 1u);
  EXPECT_EQ(stopped.get().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ControlServiceTest, EndAllAnswersRequestsWithoutTheIoContext) {
  std::future<grpc::Status> before = Stop();
  // The request may arrive before or after EndAll.
  service_.EndAll();
  EXPECT_EQ(before.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Stop().get().error_code(), grpc::StatusCode::UNAVAILABLE);
  io_.poll();  // the handler of an answered request must do nothing
}

}  // namespace
}  // namespace ddprun
