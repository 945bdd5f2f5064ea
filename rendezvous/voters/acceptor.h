// A voter's part in the agreement on a job's register.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "rendezvous/voters/vote.h"

namespace ddprun {

// The acceptor of Paxos, in memory. Pure. It knows neither the other voters nor a time, and so never expires anything. A process
// that has restarted has a new id, so that nothing relies on what it has forgotten.
class Acceptor {
 public:
  explicit Acceptor(std::string id) : id_(std::move(id)) {}

  //   Errors: kNotFound: the request is for another voter, which was at this address before.
  absl::StatusOr<VoteReply> Vote(const VoteRequest& request);

 private:
  VoteReply Accept(const VoteRequest& request);

  const std::string id_;
  Ballot promised_;
  Ballot accepted_;
  std::optional<VotedRecord> record_;  // has its charter
};

}  // namespace ddprun
