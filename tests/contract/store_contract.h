// Fixtures for contract tests: a coordinator's store, and clients for either of the store's two protocols.
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

enum class Protocol { kC10d, kGrpc };

inline std::string ProtocolName(Protocol protocol) { return protocol == Protocol::kC10d ? "C10d" : "Grpc"; }
inline Protocol OtherThan(Protocol protocol) {
  return protocol == Protocol::kC10d ? Protocol::kGrpc : Protocol::kC10d;
}

// Timeout for calls that are expected to return earlier.
inline constexpr Duration kLong = seconds(60);
// Timeout for calls that are expected to time out.
inline constexpr Duration kShort = milliseconds(20);

class StorePortTest : public testing::Test {
 protected:
  ~StorePortTest() override {
    thread_.Run([this] { host_.reset(); });
  }

  std::unique_ptr<StoreClient> Connect(Protocol protocol) {
    if (protocol == Protocol::kC10d) return Checked(C10dClient::Connect("127.0.0.1", port(), kLong));
    return Checked(GrpcStore::Connect("127.0.0.1", port(), kLong));
  }
  int port() const { return host_->port(); }
  int64_t NumWaiting() {
    return thread_.Run([this] { return host_->StoreForTest().NumWaiting(); });
  }
  bool NumWaitingBecomes(int64_t n) {
    return thread_.Eventually([this, n] { return host_->StoreForTest().NumWaiting() == n; });
  }
  // Calls `f` on a new thread. Returns a future for the result.
  template <typename F>
  static auto RunAsync(F f) {
    return std::async(std::launch::async, std::move(f));
  }
  // Begins to close the host gracefully. The future becomes ready when the host has closed.
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

// Runs each test over both protocols, because the contract does not depend on the protocol.
class StoreContractTest : public StorePortTest, public testing::WithParamInterface<Protocol> {
 protected:
  std::unique_ptr<StoreClient> Connect() { return StorePortTest::Connect(GetParam()); }
  // Returns the status code that a client gets for a request that the server refuses with `code`. Over c10d
  // TCP, the server can only close the connection.
  static absl::StatusCode Refusal(absl::StatusCode code) {
    return GetParam() == Protocol::kC10d ? absl::StatusCode::kUnavailable : code;
  }

  std::unique_ptr<StoreClient> client_ = Connect();
};

#define DDPRUN_FOR_EACH_PROTOCOL(suite)                                   \
  INSTANTIATE_TEST_SUITE_P(                                               \
      Protocol, suite, testing::Values(Protocol::kC10d, Protocol::kGrpc), \
      [](const testing::TestParamInfo<Protocol>& info) { return ProtocolName(info.param); })

}  // namespace ddprun
