// The interface that the ranks of a communicator use, and waits that end when they are cancelled.
#include "worker_sdk/testing/gpu/nccl/sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

namespace ddprun::stand_in {
namespace {

class SocketsTest : public ::testing::Test {
 protected:
  SocketsTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~SocketsTest() override { unsetenv("NCCL_SOCKET_IFNAME"); }

  static bool IsLoopback(const Address& address) {
    return address.base.sa_family == AF_INET && ntohl(address.v4.sin_addr.s_addr) == INADDR_LOOPBACK;
  }
};
using SocketsDeathTest = SocketsTest;

TEST_F(SocketsTest, TheVariableNamesTheInterface) {
  for (const char* rule : {"lo", "l", "=lo", "none,lo", "=none,lo"}) {
    setenv("NCCL_SOCKET_IFNAME", rule, 1);
    EXPECT_TRUE(IsLoopback(LocalAddress())) << rule;
  }
}

TEST_F(SocketsDeathTest, NoInterfaceFits) {
  for (const char* rule : {"=l", "none"}) {
    EXPECT_DEATH(
        {
          setenv("NCCL_SOCKET_IFNAME", rule, 1);
          LocalAddress();
        },
        "no network interface with an address; NCCL_SOCKET_IFNAME is '(=l|none)'");
  }
}

TEST_F(SocketsTest, ListensAtAFreePort) {
  const Cancel cancel;
  Address address = LocalAddress();
  const UniqueFd listener = Listen(address);
  const UniqueFd caller = ConnectTo(address, cancel);
  ASSERT_TRUE(caller);
  const UniqueFd accepted = Accept(listener.get(), cancel);
  EXPECT_EQ(Write(caller, 12345, cancel), Outcome::kDone);
  int received = 0;
  EXPECT_EQ(Read(accepted, received, cancel), Outcome::kDone);
  EXPECT_EQ(received, 12345);
}

TEST_F(SocketsTest, CancelEndsWaits) {
  Cancel cancel;
  Address address = LocalAddress();
  const UniqueFd listener = Listen(address);
  const UniqueFd caller = ConnectTo(address, cancel);
  const UniqueFd other_listener = Listen(address);
  std::thread accepting([&] {
    EXPECT_FALSE(Accept(other_listener.get(), cancel));
    int none = 0;
    EXPECT_EQ(Read(caller, none, cancel), Outcome::kCancelled);
  });
  cancel.Fire();
  accepting.join();
}

TEST_F(SocketsTest, AClosedConnectionIsADeadPeer) {
  const Cancel cancel;
  Address address = LocalAddress();
  const UniqueFd listener = Listen(address);
  UniqueFd caller = ConnectTo(address, cancel);
  const UniqueFd accepted = Accept(listener.get(), cancel);
  caller.Reset();
  int none = 0;
  EXPECT_EQ(Read(accepted, none, cancel), Outcome::kPeerDied);
}

}  // namespace
}  // namespace ddprun::stand_in
