// Transitions of a job, as values: they are logged and kept as its events. round_text.h puts them into words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "base/ids.h"
#include "base/job_report.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {
namespace note {

struct NodeJoined {
  NodeName node = {};
  int nproc = 0;
};
struct WorkersFailed {
  std::string cause = {};
};
struct SnapshotTaken {
  NodeName node = {};
  int64_t step = 0;
};
struct NodeLeaving {
  NodeStopping why = {};
};
struct DrainRequested {
  TakenOut why = {};
};
struct NodeDrained {
  TakenOut why = {};
};
struct JobClosing {
  CloseReason why = {};
};
struct HostExcluded {
  std::string host = {};
  int failures = 0;
};
struct SnapshotAsked {
  Round round = {};
  InterruptReason why = {};
};
struct RoundSealed {
  Round round = {};
  int nodes = 0;
  int workers = 0;
  SealReason why = {};
};
struct RoundEnded {
  Round round = {};
  EndOfRound why = {};
};
struct RoundReported {
  std::shared_ptr<const JobReport> report;
};
struct Paused {
  int rounds = 0;  // in a row that lost nodes without progress
  Duration pause = {};
};
struct WaitingForNodes {
  Waiting what = {};
};
struct JobClosed {
  EndOfJob end = {};
};

// Of the coordinator.
struct JobDeserted {};
struct JobForgotten {
  enum class Why { kNoNodes, kNoneCameBack, kOtherOptions } why = Why::kNoNodes;
};
struct AgentRefused {
  DismissReason why = {};
};
struct BadMessage {
  NodeId node = {};
  std::string why = {};
};

}  // namespace note

using Note = std::variant<note::NodeJoined, note::WorkersFailed, note::SnapshotTaken, note::NodeLeaving,
                          NodeMissed, note::DrainRequested, note::NodeDrained, note::JobClosing,
                          note::HostExcluded, note::SnapshotAsked, note::RoundSealed, note::RoundEnded,
                          note::RoundReported, note::Paused, note::WaitingForNodes, note::JobClosed,
                          note::JobDeserted, note::JobForgotten, note::AgentRefused, note::BadMessage>;

}  // namespace ddprun
