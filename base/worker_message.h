// Messages between a worker and its agent, sent as packets on the abstract Unix socket (SOCK_SEQPACKET) that
// DDPRUN_AGENT_SOCKET names. One packet is one message:
//
//   u32 magic "DDPW"  u8 version  u8 kind  u16 0
//   any number of fields: u16 tag  u16 length  `length` bytes
//
// Kinds: 1 WorkerReport, 2 AgentRequest, 3 version notice, 4 WorkerSurvival, 5 RoundOffer, 6 WorkerPage. A receiver ignores
// kinds that it does not know: an agent that cannot let workers survive does not answer a WorkerSurvival.
//
// Numbers are little-endian. A field holds an i64 (length 8) or text. The worker and its agent may be of
// different releases, because a container has its own library. Within a version, a tag keeps its meaning and
// a receiver skips tags that it does not know. A release that cannot keep this rule has another version; a
// receiver of another version answers with a version notice, and both sides say so.
//
// Pure, and free of Abseil and protobuf, because it is part of the worker library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

inline constexpr int kWorkerMessageVersion = 1;
inline constexpr size_t kMaxWorkerMessageBytes = 4096;  // a receiver ignores longer packets
inline constexpr size_t kMaxReportTextBytes = 1000;

// What a worker is doing. The numbers are those on the wire.
enum class WorkerPhase : int {
  kUnspecified = 0,
  kStarting = 1,  // connecting, building the model
  kLoading = 2,   // reading data or a snapshot
  kTraining = 3,
  kSnapshotting = 4,  // may take long without a step
  kFinishing = 5,     // all steps are done
};

// The name of `phase`, such as "training"; empty for kUnspecified and for numbers of later releases.
std::string_view NameOf(WorkerPhase phase);

// Sent by a worker at any time, usually once per step. Only the newest report counts; any report may be lost.
struct WorkerReport {
  Round round;           // from the environment; a report of another round is stale
  Rank rank;             // in that round
  LocalRank local_rank;  // on this node; 0 .. 65535
  int64_t pid = 0;       // as the process itself sees it; the socket's credentials are authoritative
  int64_t step = 0;      // optimizer updates done since the job began, over all rounds
  WorkerPhase phase = WorkerPhase::kUnspecified;
  std::string message{};  // for people; encoded as at most kMaxReportTextBytes
  std::optional<int64_t>
      snapshot_step{};  // the newest durable snapshot that this worker completed in `round`

  bool operator==(const WorkerReport&) const = default;
};

// A request to stop after a snapshot, in agreement with the other ranks.
struct WorkerStop {
  TimePoint by;          // when the round is ended; on the monotonic clock (steady_clock) of the machine
  std::string reason{};  // for people; encoded as at most kMaxReportTextBytes

  bool operator==(const WorkerStop&) const = default;
};

// What the agent requests from a worker, and what it knows about its round: the whole state, so only the newest one counts.
struct AgentRequest {
  Round round;
  bool take_snapshot = false;  // as soon as possible, then report snapshot_step
  // The worker may survive the end of its round: the answer to SurvivalState::kAsks.
  bool may_survive = false;
  bool round_over = false;        // the round has ended: park
  bool no_round_follows = false;  // with may_survive: no round will be offered; exit
  std::optional<WorkerStop> stop{};

  bool operator==(const AgentRequest&) const = default;
};

// The numbers are those on the wire.
enum class SurvivalState : int {
  kAsks = 1,  // the process asks to live when its round ends; sent once for each connection
  kParked =
      2,  // the process has ended all access to the memory and the connections of `round`, and waits for an offer
};

// Sent by a worker that can take part in further rounds without a restart. Unlike a report, it must not be lost: the
// sender waits until the socket has room. Counts as long as the connection exists.
struct WorkerSurvival {
  Round round;  // of the worker; a message of another round is stale
  Rank rank;    // in that round
  LocalRank local_rank;
  int64_t pid = 0;
  SurvivalState state = SurvivalState::kAsks;
  std::string
      message{};  // kParked: why the worker's round ended, for people; encoded as at most kMaxReportTextBytes

  bool operator==(const WorkerSurvival&) const = default;
};

// Sent by a worker at the beginning of each connection, together with the descriptor (SCM_RIGHTS) of memory with the layout of
// base/operation_page.h.
struct WorkerPage {
  LocalRank local_rank;

  bool operator==(const WorkerPage&) const = default;
};

// The agent's offer to a parked worker to take part in `round`. The fields are those of WorkerEnv; a worker's local rank and
// the number of workers on its node do not change.
struct RoundOffer {
  Round round;  // later than the worker's round
  Rank rank;
  GroupRank group_rank;
  int world_size = 1;
  int group_world_size = 1;
  int role_rank = 0;
  int role_world_size = 1;
  int restart_count = 0;
  std::string master_addr{};
  int master_port = 0;
  std::string node_addr{};
  Duration lease{};

  bool operator==(const RoundOffer&) const = default;
};

std::string Encode(const WorkerReport& report);
std::string Encode(const AgentRequest& request);
std::string Encode(const WorkerSurvival& survival);
std::string Encode(const WorkerPage& page);
std::string Encode(const RoundOffer& offer);  // REQUIRES: texts of at most kMaxReportTextBytes
// A message without fields that tells the receiver the sender's version.
std::string EncodeVersionNotice();

// Decode one packet. Return nullopt if it is no message of this kind and version, or is malformed: a field is
// cut off, has the wrong length, or has a value out of range; an offer must have all numbers, and ranks that are below the
// sizes of their worlds. Invalid UTF-8 is not checked.
std::optional<WorkerReport> DecodeWorkerReport(std::string_view packet);
std::optional<AgentRequest> DecodeAgentRequest(std::string_view packet);
std::optional<WorkerSurvival> DecodeWorkerSurvival(std::string_view packet);
std::optional<WorkerPage> DecodeWorkerPage(std::string_view packet);
std::optional<RoundOffer> DecodeRoundOffer(std::string_view packet);

// The version of a message that another version sent; nullopt if `packet` has this version or is no message.
std::optional<int> OtherVersion(std::string_view packet);

}  // namespace ddprun
