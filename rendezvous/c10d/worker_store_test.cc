// Tests the session, the server and the store together over real sockets. The requests in the tables were
// captured from PyTorch's clients.

#include <sys/resource.h>

#include <algorithm>
#include <future>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"
#include "rendezvous/c10d/c10d_server.h"

namespace ddprun {
namespace {

using End = RawPeer::End;

constexpr char kGreeting[] = "00 ce f7 85 3c";

struct Exchange {
  const char* request;
  const char* reply;  // empty if there is none
};

constexpr Exchange kVersioned[] = {
    {"0d 37 21 00 00", "37 21 00 00"},
    {"04 05 .. 69 6e 69 74 2f 01 ..", "01 .."},
    {"01 02 .. 2f 6b 02 .. 76 31", ""},
    {"06 01 .. 02 .. 2f 6b", "00"},
    {"03 02 .. 2f 6b", "02 .. 76 31"},
    {"04 02 .. 2f 6e 05 ..", "05 .."},
    {"04 02 .. 2f 6e f9 ff ff ff ff ff ff ff", "fe ff ff ff ff ff ff ff"},
    {"03 02 .. 2f 6e", "02 .. 2d 32"},
    {"05 02 .. 02 .. 2f 6b 03 .. 2f 7a 7a", "01"},
    {"05 01 .. 02 .. 2f 6b", "00"},
    {"05 00 ..", "00"},
    {"06 00 ..", "00"},
    {"02 03 .. 2f 63 73 00 .. 01 .. 61", "01 .. 61"},
    {"02 03 .. 2f 63 73 01 .. 78 01 .. 62", "01 .. 61"},
    {"02 02 .. 2f 78 01 .. 65 01 .. 64", "01 .. 65"},
    {"07", "04 .."},
    {"08 02 .. 2f 6b", "01 .."},
    {"08 02 .. 2f 6b", "00 .."},
    {"03 02 .. 2f 6b", "00 .."},
    {"09 03 .. 2f 61 70 02 .. 78 79", ""},
    {"09 03 .. 2f 61 70 01 .. 7a", ""},
    {"03 03 .. 2f 61 70", "03 .. 78 79 7a"},
    {"0b 02 .. 02 .. 2f 61 01 .. 31 02 .. 2f 62 02 .. 32 32", ""},
    {"0a 03 .. 02 .. 2f 61 02 .. 2f 62 02 .. 2f 7a", "01 .. 31 02 .. 32 32 00 .."},
    {"0a 00 ..", ""},
    {"06 01 .. 08 .. 2f 6d 69 73 73 69 6e 67 0c", "01"},
    {"0c", "01"},
    {"12 04 .. 2f 62 61 72 01 ..", "00"},
    {"12 05 .. 2f 62 61 72 32 02 .. 0c", "01"},
    {"03 05 .. 2f 62 61 72 32", "01 .. 31"},
    {"0e 02 .. 2f 71 04 .. 69 74 65 6d", ""},
    {"10 02 .. 2f 71", "01 .."},
    {"06 01 .. 02 .. 2f 71", "00"},
    {"0f 02 .. 2f 71", "01 .. 04 .. 69 74 65 6d"},
    {"0f 02 .. 2f 71", "00 .."},
    {"01 00 .. 00 ..", ""},
    {"03 00 ..", "00 .."},
};

constexpr Exchange kA[] = {
    {"03 05 .. 69 6e 69 74 2f 01 ..", "01 .."},
    {"00 02 .. 2f 6b 02 .. 76 31", ""},
    {"05 01 .. 02 .. 2f 6b", "00"},
    {"02 02 .. 2f 6b", "02 .. 76 31"},
    {"01 03 .. 2f 63 73 00 .. 01 .. 61", "01 .. 61"},
    {"01 03 .. 2f 63 73 01 .. 61 01 .. 62", "01 .. 62"},
    {"04 01 .. 02 .. 2f 7a", "01"},
    {"06", "03 .."},
    {"08 02 .. 2f 6b", "01 .."},
    {"06", "02 .."},
};

constexpr Exchange kB[] = {
    {"0b", "01"},
    {"08 02 .. 2f 6b 01 .. 78", ""},
    {"08 02 .. 2f 6b 01 .. 79", ""},
    {"09 01 .. 02 .. 2f 6b", "02 .. 78 79"},
    {"0a 01 .. 02 .. 2f 61 01 .. 31", ""},
    {"07 02 .. 2f 6b", "01 .."},
    {"06", "01 .."},
};

class WorkerStoreTest : public testing::Test {
 protected:
  ~WorkerStoreTest() override {
    thread_.Run([this] { store_.reset(); });
  }

  void Open(C10dServerOptions options = {}) {
    options.on_error = [this](const std::string&, const absl::Status& why) { errors_.push_back(why); };
    thread_.Run([&] {
      auto store = WorkerStore::Open(thread_.io(), "127.0.0.1", 0, std::move(options));
      ASSERT_TRUE(store.ok()) << store.status();
      store_ = *std::move(store);
      port_ = store_->port();
    });
  }
  RawPeer Versioned() {
    RawPeer peer(port_);
    EXPECT_TRUE(peer.Send(Hex(kGreeting)));
    return peer;
  }
  // Sends `request` and expects exactly `reply`.
  static void Expect(RawPeer& peer, absl::string_view request, absl::string_view reply) {
    ASSERT_TRUE(peer.Send(Hex(request)));
    ASSERT_EQ(ToHex(peer.Receive(Hex(reply).size())), ToHex(Hex(reply))) << "reply to " << request;
  }
  // Waits until all earlier requests of `peer` have been executed. Expects that no reply to them is unread.
  static void ExpectQuiet(RawPeer& peer) { Expect(peer, "0d 51 52 53 54", "51 52 53 54"); }
  // Waits until `n` connections are waiting. Returns false on timeout.
  bool NumWaitingReaches(int64_t n) {
    return thread_.Eventually([&] { return store_->server().store().NumWaiting() == n; });
  }
  std::vector<absl::Status> Errors() {
    return thread_.Run([this] { return errors_; });
  }

  IoThread thread_;
  std::unique_ptr<WorkerStore> store_;
  int port_ = 0;
  std::vector<absl::Status> errors_;  // used on thread_ only
};

TEST_F(WorkerStoreTest, RepliesAreByteExact) {
  const struct {
    const char* greeting;
    absl::Span<const Exchange> exchanges;
  } kTables[] = {{kGreeting, kVersioned}, {"", kA}, {"", kB}};
  for (const auto& table : kTables) {
    Open({.session = {.grace = milliseconds(1)}});
    RawPeer peer(port_);
    ASSERT_TRUE(peer.Send(Hex(table.greeting)));
    for (const Exchange& exchange : table.exchanges) Expect(peer, exchange.request, exchange.reply);
  }
  EXPECT_TRUE(Errors().empty());
}

TEST_F(WorkerStoreTest, AcceptsOneByteAtATime) {
  // The grace period is longer than any pause between two bytes. No request in these tables depends on the
  // end of the grace period.
  for (const absl::Span<const Exchange> table :
       {absl::Span<const Exchange>(kVersioned), {kB, std::size(kB)}}) {
    Open({.session = {.grace = seconds(3600)}});
    RawPeer peer(port_);
    ASSERT_TRUE(peer.Send(table.data() == kVersioned ? Hex(kGreeting) : ""));
    for (const Exchange& exchange : table) {
      for (const char byte : Hex(exchange.request)) ASSERT_TRUE(peer.Send({&byte, 1}));
      ASSERT_EQ(ToHex(peer.Receive(Hex(exchange.reply).size())), ToHex(Hex(exchange.reply)));
    }
  }
}

TEST_F(WorkerStoreTest, AcceptsAllRequestsInOneWrite) {
  Open();
  std::string requests = Hex(kGreeting), replies;
  for (const Exchange& exchange : kVersioned) {
    requests += Hex(exchange.request);
    replies += Hex(exchange.reply);
  }
  RawPeer peer(port_);
  ASSERT_TRUE(peer.Send(requests));
  EXPECT_EQ(ToHex(peer.Receive(replies.size())), ToHex(replies));
}

TEST_F(WorkerStoreTest, ListsKeys) {
  Open();
  RawPeer peer = Versioned();
  Expect(peer, "01 02 .. 2f 62 00 .. 01 02 .. 2f 61 00 .. 11", "02 .. 02 .. 2f 61 02 .. 2f 62");
}

TEST_F(WorkerStoreTest, DialectsShareThePortAndTheKeys) {
  Open({.session = {.grace = seconds(3600)}});
  RawPeer a(port_), b(port_), v = Versioned();
  ASSERT_TRUE(a.Send(Hex("05 01 .. 02 .. 2f 6b")));  // client A waits
  ASSERT_TRUE(NumWaitingReaches(1));
  Expect(b, "08 02 .. 2f 6b 02 .. 76 31 06", "01 ..");  // client B appends
  EXPECT_EQ(ToHex(a.Receive(1)), "00");
  Expect(a, "02 02 .. 2f 6b", "02 .. 76 31");
  Expect(v, "03 02 .. 2f 6b", "02 .. 76 31");
}

TEST_F(WorkerStoreTest, OpcodeEightIsDeleteKeyAfterAPauseAndAppendOtherwise) {
  Open({.session = {.grace = milliseconds(1)}});
  RawPeer a(port_);
  Expect(a, "00 02 .. 2f 6b 00 .. 08 02 .. 2f 6b", "01 ..");

  Open({.session = {.grace = seconds(3600)}});
  RawPeer b(port_);
  ASSERT_TRUE(b.Send(Hex("08 02 .. 2f 6b")));
  RawPeer other = Versioned();
  Expect(other, "0d 01 02 03 04", "01 02 03 04");  // the server has read the first half of b's APPEND
  Expect(b, "01 .. 78 02 02 .. 2f 6b", "01 .. 78");
}

TEST_F(WorkerStoreTest, AWaitGetsExactlyOneReply) {
  Open();
  RawPeer waiter = Versioned(), setter = Versioned();
  ASSERT_TRUE(waiter.Send(Hex("06 02 .. 02 .. 2f 61 02 .. 2f 62")));
  ASSERT_TRUE(NumWaitingReaches(1));
  Expect(setter, "04 02 .. 2f 61 01 ..", "01 ..");
  EXPECT_TRUE(NumWaitingReaches(1));
  Expect(setter, "01 02 .. 2f 62 00 .. 0d 01 02 03 04", "01 02 03 04");
  EXPECT_EQ(ToHex(waiter.Receive(1)), "00");
  ExpectQuiet(waiter);
}

TEST_F(WorkerStoreTest, CancelWaitAfterTheKeyWasSetYieldsBothReplies) {
  Open();
  RawPeer waiter = Versioned(), setter = Versioned();
  ASSERT_TRUE(waiter.Send(Hex("06 01 .. 02 .. 2f 61")));
  ASSERT_TRUE(NumWaitingReaches(1));
  Expect(setter, "01 02 .. 2f 61 00 .. 0d 01 02 03 04", "01 02 03 04");
  Expect(waiter, "0c", "00 01");
  ExpectQuiet(waiter);
}

TEST_F(WorkerStoreTest, ACanceledWaitGetsNoLateReply) {
  Open();
  RawPeer waiter = Versioned(), setter = Versioned();
  Expect(waiter, "06 01 .. 02 .. 2f 61 0c", "01");
  Expect(setter, "01 02 .. 2f 61 00 .. 0d 01 02 03 04", "01 02 03 04");
  ExpectQuiet(waiter);
}

TEST_F(WorkerStoreTest, RepliesStayInOrderIfAConnectionEndsItsOwnWait) {
  Open();
  RawPeer peer = Versioned();
  Expect(peer, "06 01 .. 02 .. 2f 61 04 02 .. 2f 61 07 .. 0c", "07 .. 00 01");
  ExpectQuiet(peer);
}

TEST_F(WorkerStoreTest, TheNextRequestOfALegacyClientEndsItsWait) {
  Open();
  RawPeer old(port_), setter = Versioned();
  ASSERT_TRUE(old.Send(Hex("05 01 .. 02 .. 2f 61")));
  ASSERT_TRUE(NumWaitingReaches(1));
  Expect(old, "06", "00 ..");  // the client has abandoned its wait after a timeout
  EXPECT_TRUE(NumWaitingReaches(0));
  Expect(setter, "01 02 .. 2f 61 00 .. 0d 01 02 03 04", "01 02 03 04");
  Expect(old, "06", "01 ..");  // no late reply to the wait precedes this reply
}

TEST_F(WorkerStoreTest, WaitsOfClosedConnectionsAreDropped) {
  Open();
  RawPeer setter = Versioned();
  {
    RawPeer waiter = Versioned();
    ASSERT_TRUE(waiter.Send(Hex("06 01 .. 02 .. 2f 61")));
    ASSERT_TRUE(NumWaitingReaches(1));
  }
  EXPECT_TRUE(NumWaitingReaches(0));
  Expect(setter, "04 02 .. 2f 61 01 ..", "01 ..");
  EXPECT_TRUE(Errors().empty());
}

TEST_F(WorkerStoreTest, AnIncompleteRequestDoesNotBlockOtherConnections) {
  Open();
  RawPeer half = Versioned(), other = Versioned();
  ASSERT_TRUE(half.Send(Hex("01 02 .. 2f 6b 02 .. 76")));
  Expect(other, "05 01 .. 02 .. 2f 6b", "01");
  Expect(half, "31 03 02 .. 2f 6b", "02 .. 76 31");
  Expect(other, "03 02 .. 2f 6b", "02 .. 76 31");
}

TEST_F(WorkerStoreTest, AnIdleConnectionStaysOpen) {
  Open();
  RawPeer idle(port_), other = Versioned();
  Expect(other, "04 02 .. 2f 6e 01 ..", "01 ..");
  EXPECT_EQ(thread_.Run([&] { return store_->server().num_connections(); }), 2);
  Expect(idle, "06", "01 ..");
}

TEST_F(WorkerStoreTest, BadInputClosesItsOwnConnectionOnly) {
  const struct {
    const char* bytes;
    const char* why;
  } kBad[] = {
      {"47 45 54 20 2f 20 48 54 54 50", "unknown opcode 71"},  // GET / HTTP
      {"16 03 01", "unknown opcode 22"},                       // TLS
      {"50 52 49 20 2a", "unknown opcode 80"},                 // HTTP/2
      {"00 ce f7 85 3c 00 ce f7 85 3c", "VALIDATE was sent twice"},
      {"00 ce f7 85 3c ff", "unknown opcode 255"},
      {"00 ce f7 85 3c 01 00 00 00 00 00 00 00 40", "a key has 4611686018427387904 bytes"},
      {"00 ce f7 85 3c 05 00 00 00 00 00 01 00 00", "1099511627776 keys"},
      {"00 ce f7 85 3c 04 02 .. 2f 74 01 ..", "its value is not a number: \"abc\""},
      {"00 ce f7 85 3c 12 02 .. 2f 74 01 ..", "its value is not a number"},
  };
  Open();
  RawPeer good = Versioned(), waiter = Versioned();
  Expect(good, "01 02 .. 2f 74 03 .. 61 62 63", "");
  ASSERT_TRUE(waiter.Send(Hex("06 01 .. 02 .. 2f 61")));
  size_t n = 0;
  for (const auto& bad : kBad) {
    RawPeer peer(port_);
    ASSERT_TRUE(peer.Send(Hex(bad.bytes)));
    std::string ignored;
    EXPECT_NE(peer.ReceiveToEnd(&ignored), End::kStillOpen) << bad.bytes;
    EXPECT_EQ(ignored, "");
    const std::vector<absl::Status> errors = Errors();
    ASSERT_EQ(errors.size(), ++n) << bad.bytes;
    EXPECT_NE(errors.back().message().find(bad.why), absl::string_view::npos) << errors.back();
    ExpectQuiet(good);
  }
  Expect(good, "04 02 .. 2f 61 01 ..", "01 ..");
  EXPECT_EQ(ToHex(waiter.Receive(1)), "00");
}

TEST_F(WorkerStoreTest, ValidRequestsBeforeAnInvalidRequestGetReplies) {
  Open();
  RawPeer peer = Versioned();
  ASSERT_TRUE(peer.Send(Hex("07 07 ff")));
  EXPECT_EQ(ToHex(peer.Receive(16)), ToHex(Hex("00 .. 00 ..")));
}

TEST_F(WorkerStoreTest, ConnectionsThatExceedALimitAreClosed) {
  Open({.store = {.max_bytes = 4096}, .max_reply_bytes = 100});
  std::string big;
  c10d::AppendRequest(c10d::Set{"/big", std::string(5000, 'x')}, c10d::Dialect::kVersioned, &big);
  RawPeer writer = Versioned(), reader = Versioned();
  ASSERT_TRUE(writer.Send(big));
  std::string ignored;
  EXPECT_NE(writer.ReceiveToEnd(&ignored), End::kStillOpen);
  std::string small;
  c10d::AppendRequest(c10d::Set{"/k", std::string(40, 'x')}, c10d::Dialect::kVersioned, &small);
  ASSERT_TRUE(reader.Send(small));
  Expect(reader, "05 01 .. 02 .. 2f 6b", "00");
  ASSERT_TRUE(reader.Send(Hex("0a 03 .. 02 .. 2f 6b 02 .. 2f 6b 02 .. 2f 6b")));
  EXPECT_NE(reader.ReceiveToEnd(&ignored), End::kStillOpen);
  EXPECT_EQ(ignored, "");
  const std::vector<absl::Status> errors = Errors();
  ASSERT_EQ(errors.size(), 2);
  for (const absl::Status& error : errors) EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(errors[0].message().find("the store is full"), absl::string_view::npos);
  EXPECT_NE(errors[1].message().find("the reply would have more than 100 bytes"), absl::string_view::npos);
}

TEST_F(WorkerStoreTest, RequestsOfASlowReaderAreDelayedButNotLost) {
  constexpr int kRequests = 200;
  Open();
  RawPeer slow = Versioned(), other = Versioned();
  const std::string value(1 << 20, 'v');
  std::string requests;
  c10d::AppendRequest(c10d::Set{"/v", value}, c10d::Dialect::kVersioned, &requests);
  for (int i = 0; i < kRequests; ++i) {
    c10d::AppendRequest(c10d::Add{"/n", 1}, c10d::Dialect::kVersioned, &requests);
    c10d::AppendRequest(c10d::Get{"/v"}, c10d::Dialect::kVersioned, &requests);
  }
  ASSERT_TRUE(slow.Send(requests));
  const auto done = [&] {
    int64_t n = 0;
    return absl::SimpleAtoi(store_->server().store().Get("/n"), &n) ? n : 0;
  };
  ASSERT_TRUE(thread_.Eventually([&] { return done() >= 2; }));
  ExpectQuiet(other);
  // Kernel buffers are smaller than 200 MiB, and the session exceeds its limit by at most one reply.
  EXPECT_LT(thread_.Run(done), kRequests);

  std::string expected;
  for (int i = 0; i < kRequests; ++i) {
    expected.clear();
    c10d::AppendI64(i + 1, &expected);
    c10d::AppendBytes(value, &expected);
    ASSERT_TRUE(slow.Receive(expected.size()) == expected) << "reply " << i;
  }
  EXPECT_EQ(thread_.Run(done), kRequests);
}

TEST_F(WorkerStoreTest, LargeValuesAreStoredAndReturned) {
  Open();
  RawPeer peer = Versioned();
  std::string value(8 << 20, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31 + i / 257);
  std::string request, reply;
  c10d::AppendRequest(c10d::Set{"/v", value}, c10d::Dialect::kVersioned, &request);
  c10d::AppendRequest(c10d::Get{"/v"}, c10d::Dialect::kVersioned, &request);
  c10d::AppendBytes(value, &reply);
  ASSERT_TRUE(peer.Send(request));
  EXPECT_TRUE(peer.Receive(reply.size()) == reply);
}

TEST_F(WorkerStoreTest, AHalfClosedConnectionReceivesItsReplies) {
  Open();
  RawPeer peer = Versioned();
  ASSERT_TRUE(peer.Send(Hex("07")));
  peer.Shutdown();
  std::string reply;
  EXPECT_EQ(peer.ReceiveToEnd(&reply), End::kFin);
  EXPECT_EQ(ToHex(reply), ToHex(Hex("00 ..")));
}

TEST_F(WorkerStoreTest, ThousandsOfWaitersAreWoken) {
  rlimit files;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  const int count = static_cast<int>(std::min<rlim_t>(files.rlim_max / 2 - 100, 10'000));
  Open();
  std::vector<RawPeer> waiters;
  for (int i = 0; i < count; ++i) {
    waiters.push_back(Versioned());
    ASSERT_TRUE(waiters.back().Send(Hex("06 01 .. 02 .. 2f 61")));
  }
  ASSERT_TRUE(NumWaitingReaches(count));
  RawPeer setter = Versioned();
  Expect(setter, "01 02 .. 2f 61 00 ..", "");
  for (RawPeer& waiter : waiters) ASSERT_EQ(ToHex(waiter.Receive(1)), "00");
}

TEST_F(WorkerStoreTest, CloseSendsFinAndWaitsForThePeersToDisconnect) {
  Open();
  RawPeer waiter = Versioned(), idle(port_), asker = Versioned();
  ASSERT_TRUE(waiter.Send(Hex("06 01 .. 02 .. 2f 61")));
  ASSERT_TRUE(NumWaitingReaches(1));
  ExpectQuiet(asker);
  std::promise<void> closed;
  thread_.Run([&] { store_->Close(seconds(3600), [&] { closed.set_value(); }); });
  std::string ignored;
  EXPECT_EQ(waiter.ReceiveToEnd(&ignored), End::kFin);
  EXPECT_EQ(idle.ReceiveToEnd(&ignored), End::kFin);
  // A request that arrives during the close is discarded and causes no reset.
  ASSERT_TRUE(asker.Send(Hex("07")));
  EXPECT_EQ(asker.ReceiveToEnd(&ignored), End::kFin);
  EXPECT_EQ(ignored, "");

  waiter.Close();
  idle.Close();
  asker.Close();
  EXPECT_EQ(closed.get_future().wait_for(seconds(20)), std::future_status::ready);
  EXPECT_TRUE(Errors().empty());
}

TEST_F(WorkerStoreTest, CloseDoesNotResetAConnectionInTheBacklog) {
  Open();
  std::promise<void> closed;
  std::unique_ptr<RawPeer> peer;
  thread_.Run([&] {
    peer = std::make_unique<RawPeer>(port_);  // not accepted while this function runs
    store_->Close(seconds(3600), [&] { closed.set_value(); });
  });
  std::string ignored;
  EXPECT_EQ(peer->ReceiveToEnd(&ignored), End::kFin);
  peer->Close();
  EXPECT_EQ(closed.get_future().wait_for(seconds(20)), std::future_status::ready);
}

TEST_F(WorkerStoreTest, CloseWaitsAtMostForTheLingerTime) {
  Open();
  RawPeer stays = Versioned();
  ExpectQuiet(stays);
  std::promise<void> closed;
  thread_.Run([&] { store_->Close(milliseconds(1), [&] { closed.set_value(); }); });
  EXPECT_EQ(closed.get_future().wait_for(seconds(20)), std::future_status::ready);
  std::string ignored;
  EXPECT_EQ(stays.ReceiveToEnd(&ignored), End::kFin);
}

TEST_F(WorkerStoreTest, AStoreWithoutConnectionsClosesImmediatelyAndFreesItsPort) {
  Open();
  std::promise<void> closed;
  thread_.Run([&] { store_->Close(seconds(3600), [&] { closed.set_value(); }); });
  EXPECT_EQ(closed.get_future().wait_for(seconds(20)), std::future_status::ready);
  thread_.Run([&] { EXPECT_TRUE(WorkerStore::Open(thread_.io(), "127.0.0.1", port_).ok()); });
}

TEST_F(WorkerStoreTest, EveryRoundHasAnEmptyStore) {
  Open();
  RawPeer first = Versioned();
  Expect(first, "04 02 .. 2f 6e 01 ..", "01 ..");
  Open();
  RawPeer second = Versioned();
  Expect(second, "07", "00 ..");
}

}  // namespace
}  // namespace ddprun
