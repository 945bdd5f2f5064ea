// Requests of users for the stacks of the workers of a round, which the coordinator passes to the nodes. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// A node that was asked.
struct StackNode {
  std::string host = {};
  Rank first_rank = {};
  int nproc = 1;  // number of workers
  // Absent: it has not answered.
  std::optional<proto::Stacks> answer = {};
  std::string why_not = {};  // why it will not answer; empty: it may
};

// Returns a text with the stacks of all ranks, for people: threads with equal names and stacks are shown once, with their ranks;
// main threads first, and of them the smallest groups. Control characters are removed; a text of more than 3 MiB is cut.
std::string StacksText(const std::vector<StackNode>& nodes);

class StackRequests {
 public:
  using Reply = std::function<void(absl::StatusOr<std::string>)>;
  // How long a request waits for the nodes. What comes later is not shown.
  static constexpr Duration kLimit = seconds(6);
  static constexpr Duration kNativeLimit = seconds(14);
  // Bytes of the answers of all nodes together, and of one node.
  static constexpr int64_t kAllBytes = int64_t{3} << 20, kMinBytes = 512, kMaxNodeBytes = int64_t{512} << 10;
  static constexpr size_t kMaxOpen = 4;

  // Whether kMaxOpen requests are open, so that no other one may begin.
  bool full() const { return requests_.size() >= kMaxOpen; }
  // Begins a request to these nodes, which are given by the connections to their agents. Returns its number. Calls `reply` once, in a
  // later call of a method.
  //   REQUIRES: `nodes` is not empty; !full().
  int64_t Begin(std::map<uint64_t, StackNode> nodes, Duration limit, Reply reply, TimePoint now);
  // The limit of one answer.
  static int64_t MaxBytes(size_t nodes);

  // The answer of a node. One that belongs to no request is ignored.
  void Came(uint64_t peer, const proto::Stacks& answer);
  // The connection to an agent is closed.
  void Lost(uint64_t peer);
  // Answers the requests whose time is over.
  void Tick(TimePoint now);
  // Ends all requests with an error.
  void EndAll(const absl::Status& why);
  std::optional<TimePoint> NextDeadline() const;

 private:
  struct Request {
    std::map<uint64_t, StackNode> nodes;
    Reply reply;
    Duration limit = {};
    TimePoint end = {};
  };
  void AnswerIfComplete(int64_t number);
  void Answer(int64_t number);

  std::map<int64_t, Request> requests_;
  int64_t last_ = 0;
};

}  // namespace ddprun
