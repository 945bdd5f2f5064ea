// The shell around CoordinatorMachine. The shell decodes messages from agents, encodes messages to agents,
// and owns the timer. Production and the simulation use Coordinator with different timers and peers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "boost/json/object.hpp"
#include "proto/rendezvous.pb.h"
#include "rendezvous/coordinator/event_ring.h"
#include "rendezvous/coordinator/recording.h"
#include "rendezvous/coordinator/stack_requests.h"
#include "rendezvous/core/charter.h"
#include "rendezvous/core/coordinator_machine.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {

// The pointer is shared because the same message may be queued for many nodes.
using SharedMessage = std::shared_ptr<const proto::CoordinatorMessage>;

// The coordinator's end of a connection to an agent. The coordinator calls all methods on its own thread.
class AgentPeer {
 public:
  virtual ~AgentPeer() = default;
  virtual void Send(SharedMessage message) = 0;
  // Ends the connection after all queued messages have been sent. The coordinator does not call Send after
  // End.
  virtual void End() = 0;
  // Returns the agent's address as seen by the coordinator.
  virtual std::string address() const = 0;
  // Returns true for the agent in the coordinator's process.
  virtual bool in_process() const = 0;
};

// Keeps the charter of the job that a coordinator leads in the job's register.
//   Threads: the coordinator's thread. The methods are called from within its steps, and do not call it back.
class CharterKeeper {
 public:
  virtual ~CharterKeeper() = default;
  // Writes the charter with this number. Coordinator::CharterWritten follows, unless the lead is lost.
  virtual void Write(int64_t number, const Charter& charter) = 0;
  // Ends the lead, so that others can lead the job at once; see HandOver. Coordinator::HandedOver follows.
  virtual void HandOver(bool forget) = 0;
  // LeadLeft and Complete are called at most once in each step, whose messages all have the answer.
  //
  // Returns how long this process leads, unless its lead is renewed.
  virtual Duration LeadLeft() const = 0;
  // Adds to an order to start a round how its nodes find the next coordinator. `start` is empty.
  virtual void Complete(proto::Start& /*start*/) const {}
};

// A node of the job that a process leads.
struct LedNode {
  std::string host = {};
  std::string address = {};  // as the coordinator sees it
  int port = 0;              // of the coordinator in the node's process; 0: it has none
  GroupRank rank = {};       // meaningless unless it is in the round
  bool in_process = false;   // in the process that leads
  bool in_round = false;     // otherwise it waits for the next one
};

// Passes messages, operator requests and timer events to a CoordinatorMachine, and applies the effects that
// the machine returns.
//
// A coordinator with CoordinatorLimits::registered has one job, which it leads between BeginToLead and LeadLost or HandedOver.
// What follows from a change of the job's charter is held until the register has the charter. All later effects are held with
// it, in their order, except Welcome, Heard and GoneNoted, which say nothing about the job.
//   Threads: all methods except weak() must be called on the thread that runs the timer.
class Coordinator {
 public:
  // Called for every JobEvent and LogLine from CoordinatorMachine. `event` is a name such as "round_sealed".
  using Log =
      std::function<void(absl::string_view event, absl::string_view run_id, absl::string_view reason)>;
  // Whether the event concerns users also if all goes on: a round that stands still, and one that moves again.
  static bool IsForUsers(absl::string_view event);

  Coordinator(std::unique_ptr<WakeTimer> timer, Log log, CoordinatorLimits limits = {});
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Returns a pointer for handlers that may outlive the coordinator. Any thread may call weak() and copy the
  // pointer. Only the coordinator's thread may lock the pointer.
  std::weak_ptr<Coordinator> weak() { return self_; }

  // This process leads the job. `keeper` must stay valid until LeadLost, or until the coordinator is destroyed.
  //   REQUIRES: CoordinatorLimits::registered; this process does not lead.
  void BeginToLead(LeadBegun begun, CharterKeeper* keeper);
  // The register has the charters up to this number.
  void CharterWritten(int64_t number);
  // The lead has ended by CharterKeeper::HandOver.
  void HandedOver();
  // The lead was lost. Disconnects all agents; what is held is never sent.
  void LeadLost();

  // Adds a connection and returns its id. The agent's first message must be a join. `peer` must stay valid
  // until Detach is called.
  PeerId Attach(AgentPeer* peer);
  void Receive(PeerId peer, const proto::AgentMessage& message);
  // Removes a connection that either side has closed. The peer's node is then lost, unless the node has left
  // or was dismissed before.
  void Detach(PeerId peer, absl::string_view reason);

  // Ends all jobs, because this process is about to exit. If `at_once` is set, all jobs end immediately.
  // Otherwise, each job ends as soon as its workers have stopped. Dismisses agents that have not joined a job
  // and agents that join later.
  void CloseAll(const std::string& reason, bool at_once = false);
  // Returns the address and the port of a coordinator that may lead the job of this process next; nullopt if there is none.
  std::optional<std::pair<std::string, int>> Standby() const;
  // Returns the nodes of the job that this process leads.
  std::vector<LedNode> LedNodes() const;
  // Where a coordinator in another process listens: its address as this one sees it, and its port.
  using Listener = std::pair<std::string, int>;
  // Returns the coordinators in the processes of those nodes that have said that they leave the job, or whose processes have exited
  // according to their wardens, since this process leads.
  const std::set<Listener>& EndedNodes() const { return ended_; }
  // Returns the nodes, with their tokens, of the reports by ReportGone that this process has received without leading the job.
  std::vector<std::pair<std::string, std::string>> GoneNodes() const;
  // Returns whether the job that this process leads is handed over, now or when its charter is written.
  bool hands_over() const;
  // Returns the number of jobs that are not closed.
  int num_open_jobs() const;
  // Returns the addresses of the connected agents in other processes, as seen by the coordinator.
  std::vector<std::string> AgentAddresses() const;
  int num_peers() const { return machine_.num_peers(); }
  // Sets a function that is called after every step.
  void set_on_step(std::function<void()> f) { on_step_ = std::move(f); }
  // Returns whether there is a job with this id, which may have ended, or whether this process leads it.
  bool HasJob(const std::string& run_id) const {
    return machine_.jobs().contains(run_id) || (keeper_ != nullptr && led_ == run_id);
  }
  // Returns the status page as a JSON object.
  //   Source: docs/protocol.md, section "HTTP".
  boost::json::object Status() const;
  // Returns the stored events of the job with sequence numbers greater than `after`, one per line.
  //   Errors: those of CoordinatorMachine::FindJob. Drain, Preempt and Stop may have the same errors.
  absl::StatusOr<std::string> Events(const std::string& run_id, uint64_t after) const;

  // Reports that the agent and all workers of `node` have exited. `token` is the secret that the node's
  // warden holds.
  //   Errors: kNotFound: no such node; kPermissionDenied: wrong token.
  absl::Status ReportGone(const std::string& run_id, const NodeId& node, const std::string& token);
  // Called once with human-readable text that describes the effect of a request, within the call of the request or later, when
  // the effect outlives this process. Not called after the coordinator is destroyed.
  //   Errors: also kUnavailable: this process has lost its lead. The request may have had its effect.
  using Reply = std::function<void(absl::StatusOr<std::string>)>;
  // Takes a node out of its job. `node` is the node's id or host.
  //   Errors: kNotFound: no such node; kInvalidArgument: `node` is a host with several nodes;
  //           kFailedPrecondition: the job is closed, or the node hosts the coordinator, which cannot move.
  void Drain(const std::string& run_id, const std::string& node, const std::string& reason, Reply reply);
  // Gives a node notice of pre-emption.
  //   Errors: those of Drain, but the node may host the coordinator.
  void Preempt(const PreemptNode& request, Reply reply);
  // Stops the workers of a job and ends the job.
  //   Errors: kFailedPrecondition: the job is closed.
  void Stop(const std::string& run_id, const std::string& reason, Reply reply);
  // Collects the stacks of the workers of the running round, or of one of them, within the limits of StackRequests.
  //   native: by gdb, which pauses them.
  //   Errors: kNotFound: no such rank; kFailedPrecondition: no round runs.
  void Stacks(const std::string& run_id, std::optional<Rank> rank, bool native, Reply reply);

  // Passes a record of every step to `sink`. REQUIRES: called before the first step.
  void RecordTo(StepSink sink) { recorder_.emplace(std::move(sink), limits_.registered); }

  CoordinatorMachine& machine_for_test() { return machine_; }

 private:
  void Step(const CoordinatorEvent& event);
  void Step(const CoordinatorEvent& event, TimePoint now);
  // Takes note of what a node says about the coordinator in its process.
  void NoteListener(PeerId id, const proto::AgentMessage& message);
  // Writes the charter of the job that this process leads, if it has changed.
  void WriteCharter();
  // Carries out `effect` now, or when the effects before it have been.
  void Pass(CoordinatorEffect effect);
  // A step that carries out the effects that are no longer held.
  void Release();
  void EndStep();
  // CharterKeeper::LeadLeft and Complete, as of this step. REQUIRES: this process leads.
  int64_t LeadLeftMs();
  const proto::Start& StartAdditions();
  void Do(const Welcome& e);
  void Do(const Heard& e);
  void Do(const Order& e);
  void Do(const HangUp& e);
  void Do(const JobEvent& e);
  void Do(const LogLine& e);
  void Do(const JobHandedOver& e);
  void Do(const JobRetired& e);
  void Do(const JobForgotten& e);
  void Do(const GoneNoted& e);
  void Do(const Answer& e);
  // The nodes whose workers run, or only that of `rank`, and the rank's local rank.
  absl::StatusOr<std::map<PeerId, StackNode>> StackNodes(const std::string& run_id, std::optional<Rank> rank,
                                                         std::optional<int>* local_rank) const;
  void WriteLog(const std::string& run_id, const NoteText& text);
  void Send(PeerId peer, SharedMessage message);
  void SetTimer();

  // This pointer does not own the coordinator. The pointers returned by weak() expire when this member is
  // destroyed.
  const std::shared_ptr<Coordinator> self_{this, [](Coordinator*) {}};
  const std::unique_ptr<WakeTimer> timer_;
  const Log log_;
  const CoordinatorLimits limits_;
  CoordinatorMachine machine_;
  std::map<PeerId, AgentPeer*> peers_;
  std::map<std::string, EventRing> events_;  // keyed by run id
  PeerId next_peer_ = 1;
  std::optional<TimePoint> timer_at_;
  std::function<void()> on_step_;
  std::optional<StepRecorder> recorder_;  // nullopt if steps are not recorded

  // An effect that must not be visible before the charter with this number is written.
  struct Held {
    int64_t charter = 0;
    CoordinatorEffect effect;
  };
  CharterKeeper* keeper_ = nullptr;       // null unless this process leads
  std::string led_;                       // the job that it leads
  int64_t charter_version_ = 0;           // of the newest charter; see RoundMachine
  int64_t charters_ = 0;                  // its number
  int64_t written_ = 0;                   // number of the newest charter in the register
  bool handing_over_ = false;             // waits for HandedOver
  std::map<NodeId, Listener> listeners_;  // of the nodes that have joined since this process leads
  std::set<Listener> ended_;
  std::deque<Held> held_;      // oldest first
  std::deque<Reply> replies_;  // to requests without an answer, oldest first
  StackRequests stacks_;

  // State of the current Step.
  TimePoint now_;
  absl::Status gone_noted_;                  // from the most recent GoneNoted
  std::shared_ptr<const JobReport> report_;  // the report encoded in report_message_
  SharedMessage report_message_;
  std::string report_digest_;  // digest of report_message_; empty if not yet computed
  std::optional<int64_t> lead_left_ms_;
  std::optional<proto::Start> start_additions_;
};

}  // namespace ddprun
