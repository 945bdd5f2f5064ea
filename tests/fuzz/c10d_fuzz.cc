// Sends arbitrary bytes from two connections to one store through the real parser.
//
// The input is a list of turns. The top bit of a turn's first byte selects the connection. The other bits are
// a number N. The connection sends the N bytes that follow. If N is 0, nothing is sent, and the connection's
// grace period for an ambiguous opcode ends (c10d::Parser::EndGrace).
//
// Invariants: no crash; splitting the bytes of a turn does not change their effect; memory use stays within
// its limits, and all memory is released; serializing a parsed request gives the bytes that were read; no
// connection gets an answer to a wait that has ended.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/c10d_parser.h"
#include "proto/c10d_wire.h"
#include "rendezvous/c10d/c10d_handler.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {
namespace {

constexpr uint64_t kMaxStoreBytes = 1 << 16;
constexpr uint64_t kMaxReplyBytes = 1 << 16;
constexpr c10d::ParserLimits kParserLimits = {
    .max_key_bytes = 64, .max_value_bytes = 1024, .max_list_items = 32, .max_request_bytes = 4096};

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

// The store and its two connections.
class World {
 public:
  World() : store_({.max_bytes = kMaxStoreBytes}) {}

  // Connection `c` sends `bytes` in pieces of `piece` bytes.
  void Send(int c, absl::string_view bytes, size_t piece) {
    Connection& connection = connections_[c];
    for (; !bytes.empty() && connection.status.ok(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      const absl::string_view part = bytes.substr(0, piece);
      connection.sent.append(part.data(), part.size());
      const absl::Status parsed =
          connection.parser.Feed(part, [&](const c10d::Request& request) { return Handle(c, request); });
      Check(connection.parser.buffered_bytes() <= connection.sent.size(),
            "at most the bytes that were sent are buffered");
      if (!parsed.ok()) Close(c, parsed);
    }
  }
  void EndGrace(int c) {
    Connection& connection = connections_[c];
    if (!connection.status.ok()) return;
    const absl::Status parsed =
        connection.parser.EndGrace([&](const c10d::Request& request) { return Handle(c, request); });
    if (!parsed.ok()) Close(c, parsed);
  }

  // Returns all state that a peer or an operator can observe.
  std::string Describe() const {
    std::string out;
    for (const Connection& c : connections_) {
      absl::StrAppend(&out, c.replies.size(), ":", c.replies, c.status.ToString(), "\n");
    }
    store_.ForEachKey([&](absl::string_view key) { absl::StrAppend(&out, key, "=", store_.Get(key), "\n"); });
    absl::StrAppend(&out, store_.bytes(), " bytes, ", store_.NumWaiting(), " waiting");
    return out;
  }

  void CheckFinalState() {
    for (const Connection& c : connections_) {
      if (c.parser.dialect() != c10d::Dialect::kVersioned) continue;
      Check(absl::string_view(c.sent).substr(0, c.written_back.size()) == c.written_back,
            "a request is serialized to the bytes that were read");
    }
    store_.Forget(ConnId(0));
    store_.Forget(ConnId(1));
    Check(store_.NumWaiting() == 0, "only connected clients wait");
    std::vector<std::string> keys;
    store_.ForEachKey([&](absl::string_view key) { keys.emplace_back(key); });
    for (const std::string& key : keys) Check(store_.DeleteKey(key), "listed keys exist");
    std::string item;
    for (const std::string& name : queues_) {
      while (store_.QueuePop(name, &item)) {
      }
    }
    Check(store_.bytes() == 0, "all memory is released");
  }

 private:
  struct Connection {
    c10d::Parser parser{kParserLimits};
    absl::Status status;
    std::string sent, replies;
    std::string written_back;  // parsed requests, serialized again; versioned dialect only
    bool waiting = false;
  };

  bool Handle(int c, const c10d::Request& request) {
    Connection& connection = connections_[c];
    const c10d::Dialect dialect = connection.parser.dialect();
    if (dialect == c10d::Dialect::kVersioned) {
      if (connection.written_back.empty()) c10d::AppendValidate(&connection.written_back);
      c10d::AppendRequest(request, dialect, &connection.written_back);
    }
    if (const auto* push = std::get_if<c10d::QueuePush>(&request)) queues_.emplace_back(push->key);
    KvStore::Woken woken;
    const absl::Status status =
        HandleC10dRequest(request, ConnId(c), dialect, kMaxReplyBytes, &store_, &connection.replies, &woken);
    for (const ConnId conn : woken) {
      Connection& waiter = connections_[static_cast<size_t>(conn.value())];
      Check(waiter.waiting, "only waiting connections are woken");
      waiter.waiting = false;
      Check(!store_.IsWaiting(conn), "a woken connection no longer waits");
      Check(waiter.status.ok(), "a closed connection is not woken");
      c10d::AppendU8(static_cast<uint8_t>(c10d::WaitReply::kStopWaiting), &waiter.replies);
    }
    connection.waiting = store_.IsWaiting(ConnId(c));
    Check(store_.bytes() <= kMaxStoreBytes, "the store stays within its limit");
    if (!status.ok()) Close(c, status);
    return status.ok();
  }

  void Close(int c, const absl::Status& why) {
    connections_[c].status = why;
    connections_[c].waiting = false;
    store_.Forget(ConnId(c));
  }

  KvStore store_;
  std::array<Connection, 2> connections_;
  std::vector<std::string> queues_;
};

// Executes all turns. Sends the bytes of each turn in pieces of `piece` bytes. Returns World::Describe().
std::string Play(absl::string_view input, size_t piece) {
  World world;
  while (!input.empty()) {
    const auto turn = static_cast<uint8_t>(input[0]);
    input.remove_prefix(1);
    const absl::string_view bytes = input.substr(0, turn & 0x7f);
    input.remove_prefix(bytes.size());
    if ((turn & 0x7f) == 0) {
      world.EndGrace(turn >> 7);
    } else {
      world.Send(turn >> 7, bytes, piece);
    }
  }
  std::string seen = world.Describe();
  world.CheckFinalState();
  return seen;
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string whole = ddprun::Play(input, 127);
  for (const size_t piece : {1, 3, 8}) {
    ddprun::Check(ddprun::Play(input, piece) == whole, "splitting the input does not change its effect");
  }
  return 0;
}
