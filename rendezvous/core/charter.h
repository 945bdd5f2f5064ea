// What a coordinator must know to start the next round of a job. It outlives the coordinator in the job's register
// (docs/decisions/0017-coordinator-failover.md).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/dismissal.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "rendezvous/core/restart_decision.h"

namespace ddprun {

// How a coordinator got a job that another one had before.
enum class Takeover {
  kHandedOver,  // no node has workers
  kFenced,      // the other one was lost, and the fences of all nodes have fired
  kUnfenced,    // the other one was lost. Nodes that have not noticed may have workers for a lease
};

struct Charter {
  JobRules rules = {};
  std::optional<Round> round = {};  // the last sealed round
  int restarts = 0;
  // At the last change of another field. Nodes report the steps since then when they join.
  FurthestStep furthest = {};
  HostFailures hosts = {};
  LossStreak losses = {};
  // The hosts of the nodes of the last round, except those that left or were taken out; a host has an entry for each node.
  std::multiset<std::string> electorate = {};
  // The host of the node in the coordinator's process; empty: there was none at the last seal.
  std::string coordinator_host = {};
  // That node. The holder of the token may report that its agent and its workers have exited.
  NodeId coordinator_node = {};
  std::string coordinator_token = {};
  // The hosts that a scheduler has named, except those that were taken out; nullopt: no scheduler has.
  std::optional<std::set<std::string>> expected_hosts = {};
  // Why nodes of the last round are to be drained, by their group ranks in it.
  std::map<GroupRank, std::string> drains = {};
  // How the job ended; nullopt while it goes on.
  struct End {
    Dismissal outcome = {};
    std::string why = {};  // for people; empty if the job has succeeded
    std::string text() const { return why.empty() ? "it has succeeded" : why; }
    bool operator==(const End&) const = default;
  };
  std::optional<End> end = {};

  bool operator==(const Charter&) const = default;
};

}  // namespace ddprun
