// The server must not resolve the addresses of peers to names, because an unresponsive resolver would block
// all clients for seconds. This test replaces the resolver functions of the C library.

#include <netdb.h>

#include <atomic>
#include <memory>

#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"
#include "rendezvous/c10d/c10d_server.h"

namespace {
std::atomic<int> g_lookups{0};
}  // namespace

extern "C" {
int getnameinfo(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int) {
  ++g_lookups;
  return EAI_FAIL;
}
int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
  ++g_lookups;
  return EAI_FAIL;
}
hostent* gethostbyaddr(const void*, socklen_t, int) {
  ++g_lookups;
  return nullptr;
}
int gethostbyaddr_r(const void*, socklen_t, int, hostent*, char*, size_t, hostent**, int*) {
  ++g_lookups;
  return EAI_FAIL;
}
}

namespace ddprun {
namespace {

TEST(NoResolverTest, ServesConnectionsWithoutNameLookups) {
  IoThread thread;
  std::unique_ptr<WorkerStore> store;
  std::string error_peer;
  C10dServerOptions options;
  options.on_error = [&](const std::string& peer, const absl::Status&) { error_peer = peer; };
  const int port = thread.Run([&] {
    store = WorkerStore::Open(thread.io(), "", 0, std::move(options)).value();
    return store->port();
  });
  for (int i = 0; i < 64; ++i) {
    RawPeer peer(port);
    ASSERT_TRUE(peer.Send(Hex("00 ce f7 85 3c 0d 01 02 03 04")));
    ASSERT_EQ(ToHex(peer.Receive(4)), "01020304");
  }
  RawPeer bad(port);
  ASSERT_TRUE(bad.Send("\xff"));
  std::string ignored;
  EXPECT_NE(bad.ReceiveToEnd(&ignored), RawPeer::End::kStillOpen);
  thread.Run([&] { store.reset(); });
  EXPECT_EQ(error_peer.rfind("127.0.0.1:", 0), 0)
      << "the error must name the peer by its address: " << error_peer;
  EXPECT_EQ(g_lookups, 0);

  // The functions above must have replaced those of the C library.
  char name[8];
  const sockaddr address{};
  EXPECT_EQ(::getnameinfo(&address, sizeof address, name, sizeof name, nullptr, 0, 0), EAI_FAIL);
  EXPECT_EQ(g_lookups, 1);
}

}  // namespace
}  // namespace ddprun
