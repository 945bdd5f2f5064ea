// Tests the memory use of connections: an idle connection uses a few KiB, a connection that exceeds its
// limit is closed, and all connections together stay within the limit of the store.

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"
#include "proto/c10d_wire.h"
#include "rendezvous/c10d/c10d_server.h"

namespace ddprun {
namespace {

constexpr char kGreeting[] = "00 ce f7 85 3c";
constexpr char kPing[] = "0d 51 52 53 54";

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

class StoreMemoryTest : public testing::Test {
 protected:
  ~StoreMemoryTest() override {
    thread_.Run([this] { store_.reset(); });
  }

  void Open(C10dServerOptions options = {}) {
    options.on_error = [this](const std::string&, const absl::Status& why) { errors_.push_back(why); };
    thread_.Run([&] {
      store_ = WorkerStore::Open(thread_.io(), "127.0.0.1", 0, std::move(options)).value();
      port_ = store_->port();
    });
  }
  RawPeer Connect() {
    RawPeer peer(port_);
    EXPECT_TRUE(peer.Send(Hex(kGreeting)));
    ExpectServed(peer);
    return peer;
  }
  static void ExpectServed(RawPeer& peer) {
    ASSERT_TRUE(peer.Send(Hex(kPing)));
    ASSERT_EQ(ToHex(peer.Receive(4)), "51525354");
  }
  static std::string IncompleteSet(size_t value_bytes) {
    std::string set;
    c10d::AppendRequest(c10d::Set{"/half", std::string(value_bytes, 'x')}, c10d::Dialect::kVersioned, &set);
    set.pop_back();
    return set;
  }
  uint64_t StoreBytes() {
    return thread_.Run([this] { return store_->server().store().bytes(); });
  }
  std::vector<absl::Status> Errors() {
    return thread_.Run([this] { return errors_; });
  }

  IoThread thread_;
  std::unique_ptr<WorkerStore> store_;
  int port_ = 0;
  std::vector<absl::Status> errors_;  // used on thread_ only
};

TEST_F(StoreMemoryTest, AnIdleConnectionUsesLittleMemory) {
  rlimit files;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  const int count = static_cast<int>(std::min<rlim_t>(files.rlim_max / 2 - 100, 2000));
  Open();
  RawPeer first = Connect();
  // To grow the buffers of each connection, the test sends a value in pieces and reads the value back. The
  // value is larger than the capacity that idle buffers keep.
  std::string set, get, reply;
  const std::string value(20'000, 'v');
  c10d::AppendRequest(c10d::Set{"/v", value}, c10d::Dialect::kVersioned, &set);
  c10d::AppendRequest(c10d::Get{"/v"}, c10d::Dialect::kVersioned, &get);
  c10d::AppendBytes(value, &reply);
  std::vector<RawPeer> peers;
  peers.reserve(count);
  const int64_t before = ResidentBytes();
  for (int i = 0; i < count; ++i) {
    peers.push_back(Connect());
    RawPeer& peer = peers.back();
    ASSERT_TRUE(peer.Send(set.substr(0, 100)));
    ExpectServed(first);
    ASSERT_TRUE(peer.Send(set.substr(100) + get));
    ASSERT_TRUE(peer.Receive(reply.size()) == reply);
  }
#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer keeps freed memory
  EXPECT_LT((ResidentBytes() - before) / count, static_cast<int64_t>(kMaxIdleConnectionBytes));
#else
  (void)before;
#endif
  EXPECT_LT(StoreBytes() / count, kMaxIdleConnectionBytes);
  EXPECT_EQ(thread_.Run([this] { return store_->server().num_connections(); }), count + 1);
}

TEST_F(StoreMemoryTest, AnIncompleteRequestBeyondTheLimitClosesItsConnection) {
  Open({.session = {.max_held_bytes = 100'000}});
  RawPeer good = Connect(), waiter = Connect(), greedy = Connect();
  ASSERT_TRUE(waiter.Send(Hex("06 01 .. 02 .. 2f 61")));
  (void)greedy.Send(IncompleteSet(200'000));  // fails if the server closes the connection first
  std::string ignored;
  EXPECT_NE(greedy.ReceiveToEnd(&ignored), RawPeer::End::kStillOpen);
  const std::vector<absl::Status> errors = Errors();
  ASSERT_EQ(errors.size(), 1);
  EXPECT_EQ(errors[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(errors[0].message().find("100000 are allowed"), absl::string_view::npos) << errors[0];
  ExpectServed(good);
  ASSERT_TRUE(good.Send(Hex("01 02 .. 2f 61 00 ..")));
  EXPECT_EQ(ToHex(waiter.Receive(1)), "00");
}

TEST_F(StoreMemoryTest, UnreadRepliesBeyondTheLimitCloseTheirConnection) {
  Open({.session = {.max_held_bytes = 8 << 20}});
  RawPeer good = Connect(), slow = Connect();
  std::string requests;
  c10d::AppendRequest(c10d::Set{"/v", std::string(4 << 20, 'v')}, c10d::Dialect::kVersioned, &requests);
  const absl::string_view keys[] = {"/v", "/v", "/v", "/v"};
  c10d::AppendRequest(c10d::MultiGet{keys}, c10d::Dialect::kVersioned, &requests);
  ASSERT_TRUE(slow.Send(requests));
  ASSERT_TRUE(thread_.Eventually([this] { return errors_.size() == 1; }));
  EXPECT_EQ(Errors()[0].code(), absl::StatusCode::kResourceExhausted);
  ExpectServed(good);
}

// The peer never stops reading, but some replies are always unread. Delivered replies must not accumulate.
TEST_F(StoreMemoryTest, AReaderThatNeverCatchesUpKeepsItsConnection) {
  constexpr size_t kValueBytes = 16 << 10;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const int small = 64 << 10;
  ASSERT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  boost::asio::io_context io;
  absl::Status closed;
  C10dServer server(io, {.session = {.max_held_bytes = 1 << 20},
                         .on_error = [&](const std::string&, const absl::Status& why) { closed = why; }});
  server.Serve(ends[0]);
  std::string hello = Hex(kGreeting), get, answer;
  const std::string value(kValueBytes, 'v');
  c10d::AppendRequest(c10d::Set{"/v", value}, c10d::Dialect::kVersioned, &hello);
  c10d::AppendRequest(c10d::Get{"/v"}, c10d::Dialect::kVersioned, &get);
  c10d::AppendBytes(value, &answer);
  ASSERT_EQ(::send(ends[1], hello.data(), hello.size(), 0), hello.size());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(::send(ends[1], get.data(), get.size(), 0), get.size());
  std::string taken(answer.size(), '\0');
  for (int i = 0; i < 500; ++i) {
    io.poll();
    ASSERT_EQ(server.num_connections(), 1) << "after " << i << " replies: " << closed;
    ASSERT_EQ(::recv(ends[1], taken.data(), taken.size(), MSG_WAITALL), taken.size());
    ASSERT_TRUE(taken == answer) << "reply " << i;
    ASSERT_EQ(::send(ends[1], get.data(), get.size(), 0), get.size());
  }
  ::close(ends[1]);
}

TEST_F(StoreMemoryTest, ConnectionsAndTheirBuffersCountAgainstTheStoreLimit) {
  Open({.store = {.max_bytes = 1 << 20}});
  RawPeer good = Connect();
  const uint64_t when_idle = StoreBytes();
  EXPECT_GT(when_idle, 0);
  std::vector<RawPeer> greedy;
  for (int i = 0; i < 20; ++i) {
    greedy.push_back(Connect());
    (void)greedy.back().Send(IncompleteSet(100'000));
  }
  // The first greedy connections use up the limit. The server closes the others, but not `good`.
  ASSERT_TRUE(thread_.Eventually([this] { return errors_.size() >= 5; }));
  for (const absl::Status& error : Errors()) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(error.message().find("the store is full"), absl::string_view::npos) << error;
  }
  EXPECT_LE(StoreBytes(), 1 << 20);
  ExpectServed(good);
  greedy.clear();
  EXPECT_TRUE(thread_.Eventually([&] { return store_->server().store().bytes() == when_idle; }))
      << "bytes of closed connections were not refunded: " << StoreBytes() << " instead of " << when_idle;
}

TEST_F(StoreMemoryTest, AFullStoreRefusesNewConnectionsAndKeepsExistingOnes) {
  Open({.store = {.max_bytes = 3000}});
  RawPeer first = Connect();
  std::vector<RawPeer> more;
  while (Errors().empty()) {
    ASSERT_LT(more.size(), 100);
    more.emplace_back(port_);
    (void)more.back().Send(Hex(kGreeting));
    (void)more.back().Send(Hex(kPing));
    (void)more.back().Receive(4);
  }
  EXPECT_NE(Errors()[0].message().find("the store is full"), absl::string_view::npos) << Errors()[0];
  ExpectServed(first);
}

}  // namespace
}  // namespace ddprun
