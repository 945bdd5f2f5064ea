// A fixture with a coordinator's port, its store, and clients of both faces, for contract tests.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "rendezvous/client/c10d_client.h"
#include "rendezvous/client/grpc_store.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {

enum class Face { kC10d, kGrpc };

inline std::string FaceName(Face face) { return face == Face::kC10d ? "C10d" : "Grpc"; }
inline Face OtherThan(Face face) { return face == Face::kC10d ? Face::kGrpc : Face::kC10d; }

// Timeout of calls that are expected to return earlier.
inline constexpr Duration kLong = seconds(60);
// Timeout of calls that are expected to time out.
inline constexpr Duration kShort = milliseconds(20);

class StorePortTest : public testing::Test {
 protected:
  ~StorePortTest() override {
    thread_.Run([this] { host_.reset(); });
  }

  std::unique_ptr<StoreClient> Connect(Face face) {
    if (face == Face::kC10d) return Checked(C10dClient::Connect("127.0.0.1", port(), kLong));
    return Checked(GrpcStore::Connect("127.0.0.1", port(), kLong));
  }
  int port() const { return host_->port(); }
  int64_t NumWaiting() {
    return thread_.Run([this] { return host_->StoreForTest().NumWaiting(); });
  }
  bool WaitingComesTo(int64_t n) {
    return thread_.Eventually([this, n] { return host_->StoreForTest().NumWaiting() == n; });
  }
  // Calls `f` on a new thread.
  template <typename F>
  static auto Aside(F f) {
    return std::async(std::launch::async, std::move(f));
  }
  // Closes the host gracefully. The future is ready when it has closed.
  std::future<void> Close(const std::string& reason) {
    auto done = std::make_shared<std::promise<void>>();
    thread_.Run([&] { host_->Close(reason, kLong, [done] { done->set_value(); }); });
    return done->get_future();
  }

  IoThread thread_;
  std::unique_ptr<CoordinatorHost> host_ = thread_.Run([this] {
    return CoordinatorHost::Open(thread_.io(), "127.0.0.1", 0,
                                 [](absl::string_view, absl::string_view, absl::string_view) {})
        .value();
  });

 private:
  template <typename Client>
  static std::unique_ptr<StoreClient> Checked(absl::StatusOr<std::unique_ptr<Client>> client) {
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
};

// Runs each test for both faces: the contract does not depend on the face.
class StoreContractTest : public StorePortTest, public testing::WithParamInterface<Face> {
 protected:
  std::unique_ptr<StoreClient> Connect() { return StorePortTest::Connect(GetParam()); }
  // The code that a client gets for a refused request: c10d TCP can only close the connection.
  static absl::StatusCode Refusal(absl::StatusCode code) {
    return GetParam() == Face::kC10d ? absl::StatusCode::kUnavailable : code;
  }

  std::unique_ptr<StoreClient> client_ = Connect();
};

#define DDPRUN_FOR_EACH_FACE(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(Face, suite, testing::Values(Face::kC10d, Face::kGrpc), \
                           [](const testing::TestParamInfo<Face>& info) { return FaceName(info.param); })

}  // namespace ddprun
