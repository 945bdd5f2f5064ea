// Decides whether a running round stands still, from the levels of its nodes, and gathers the evidence. Pure: part of RoundMachine.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/standstill.h"
#include "base/time.h"
#include "rendezvous/core/hang_finding.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// The level of the round is the lowest one of the nodes whose workers report progress, or of all nodes, if there are no reports. Nodes
// whose workers have all ended do not count.
class HangMachine {
 public:
  // How long the users wait for evidence. What comes later is not in the finding.
  static constexpr Duration kEvidenceTime = seconds(5);
  static constexpr Duration kPostponed = seconds(30);
  // The number of bytes of evidence of all nodes together, and of one node.
  static constexpr size_t kMaxBytes = size_t{4} << 20, kMinNodeBytes = 512, kMaxNodeBytes = size_t{64} << 10;

  enum class Act {
    kNothing,
    kAskForEvidence,  // of all nodes of the round
    kTell,            // the round stands still; see finding
    kEnd,             // the round is hung
    kTellItMoves,     // after kTell
  };

  // A node of the round, whose first worker has this rank; at first its workers move.
  void Add(const NodeId& node, const std::string& host, Rank first_rank);
  void Changed(const NodeId& node, const NodeStandstill& standstill);
  // Returns whether the evidence answers the last request.
  bool Came(const EvidenceCame& evidence);
  // The node does not count from now on: it has been lost, leaves, or all its workers have exited with 0.
  void Remove(const NodeId& node);
  // Returns what follows from the changes and the time. Each act is returned once in a standstill, in their order, unless the
  // end is postponed. The acts of a round that stands
  // still never wait for evidence longer than kEvidenceTime, and kEnd does not wait at all.
  //   REQUIRES: called after each change, until it returns kNothing.
  [[nodiscard]] Act Next(TimePoint now);
  // The end that Next has returned does not take place, because somebody looks at a worker. Evidence is asked for again after
  // kPostponed, then Next returns kEnd again.
  void Postpone(TimePoint now);
  // When Next returns another act without a change.
  std::optional<TimePoint> NextDeadline() const;

  StandstillLevel level() const;
  // The time without progress of the node that has made progress last. O(nodes).
  Duration idle() const;
  // The number of the last request for evidence, and the bytes that each node may send.
  int64_t request() const { return request_; }
  size_t max_bytes() const;
  // From the evidence that has come in this standstill. O(workers).
  HangFinding Finding() const;

 private:
  using Levels = std::array<int, 4>;  // number of nodes, by level
  struct Node {
    std::string host = {};
    Rank first_rank = {};
    NodeStandstill standstill = {};
    std::optional<EvidenceCame> evidence = {};  // of the last request
  };

  void Count(const NodeStandstill& standstill, int n);
  Act AskForEvidence(TimePoint now);
  bool WaitsForEvidence(TimePoint now) const { return have_ < nodes_.size() && now < evidence_end_; }

  std::map<NodeId, Node> nodes_;
  Levels reporting_{}, silent_{};
  StandstillLevel done_ =
      StandstillLevel::kMoving;  // the highest level of this standstill whose act was returned
  int64_t request_ = 0;
  size_t have_ = 0;  // nodes with evidence
  TimePoint evidence_end_;
  std::optional<TimePoint> postponed_ = {};  // until then
  bool asked_again_ = false;                 // evidence is, or will be, awaited a second time before kEnd
};

}  // namespace ddprun
