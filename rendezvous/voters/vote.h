// The messages between a process that reads or writes the register of a job and the job's voters.
//
// The protocol is CASPaxos (Rystsov, 2018): single-decree Paxos in which each new value is computed from the last one.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/charter/charter_register.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {

// Orders all attempts to write. No two attempts have the same ballot.
struct Ballot {
  int64_t counter = 0;        // 0: no ballot
  std::string proposer = {};  // id of the process
  auto operator<=>(const Ballot&) const = default;
};

// What the voters agree on.
struct VotedRecord {
  RegisterRecord record = {};
  Ballot written = {};  // of the write that has made this version: tells writes of the same version apart
  Ballot charter_written = {};  // of the write that has made this charter
  VoterSet voters = {};
  bool operator==(const VotedRecord& other) const {
    return record.version == other.record.version && record.exists == other.record.exists &&
           record.lead == other.record.lead && record.charter == other.record.charter &&
           written == other.written && charter_written == other.charter_written && voters == other.voters;
  }
};

struct VoteRequest {
  enum class Kind {
    kAsk,      // only returns what the voter knows
    kPrepare,  // the voter promises to accept nothing with a lower ballot
    kAccept,   // the voter accepts `record`, and promises `next`
  };
  Kind kind = Kind::kAsk;
  std::string voter = {};                  // id; empty: that of the process at the address
  Ballot ballot = {};                      // of kPrepare and kAccept
  Ballot next = {};                        // of kAccept; greater than `ballot`
  std::optional<VotedRecord> record = {};  // of kAccept
  // kAccept: `record` has no charter, because the voter should have the one with record->charter_written.
  bool charter_omitted = false;
  // The sender has the charter of this write: the reply omits it.
  Ballot has_charter = {};
  // The sender's voters. A process that has just founded the same job learns from them that the job exists.
  std::optional<VoterSet> voters = {};
  bool wants_voters = false;  // the reply says which voters the process knows
};

struct VoteReply {
  std::string voter = {};  // id of the voter that answers
  bool witness = false;    // as Voter::witness
  bool granted = false;    // the voter has promised the ballot of kPrepare, or accepted the record of kAccept
  bool needs_charter =
      false;             // kAccept was not granted only because the voter does not have the omitted charter
  Ballot promised = {};  // the highest ballot of a promise
  Ballot accepted = {};  // of `record`
  std::optional<VotedRecord> record = {};  // what the voter has accepted last; not in replies to kAccept
  bool charter_omitted = false;            // `record` has no charter, because the sender has it
  std::optional<VoterSet> voters = {};     // if they are wanted and known
};

}  // namespace ddprun
