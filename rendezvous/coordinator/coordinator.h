// The shell around CoordinatorMachine: decodes what agents say, encodes what they are told, and owns the
// timer. Production and the simulation share it; they differ in the timer and in the peers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "boost/json/object.hpp"
#include "proto/rendezvous.pb.h"
#include "rendezvous/coordinator/event_ring.h"
#include "rendezvous/coordinator/recording.h"
#include "rendezvous/core/coordinator_machine.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {

// Shared, since all nodes may be told the same, and slow ones hear it late.
using SharedMessage = std::shared_ptr<const proto::CoordinatorMessage>;

// An agent's connection, as the coordinator sees it. Calls come on the coordinator's thread.
class AgentPeer {
 public:
  virtual ~AgentPeer() = default;
  virtual void Send(SharedMessage message) = 0;
  // No message follows.
  virtual void End() = 0;
  // Its address as seen from here.
  virtual std::string address() const = 0;
  // True for the agent of this very process: it needs no lease.
  virtual bool in_process() const = 0;
};

//   Threads: that of its timer.
class Coordinator {
 public:
  // Told of every transition: "round_sealed", run id, reason.
  using Log =
      std::function<void(absl::string_view event, absl::string_view run_id, absl::string_view reason)>;

  Coordinator(std::unique_ptr<WakeTimer> timer, Log log, CoordinatorLimits limits = {});
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // For handlers that may run when the coordinator is gone: expired then. May be called and copied anywhere,
  // to be locked on the coordinator's thread only.
  std::weak_ptr<Coordinator> weak() { return self_; }

  // A new connection; it shall send a join first. `peer` must live until Detach.
  PeerId Attach(AgentPeer* peer);
  void Receive(PeerId peer, const proto::AgentMessage& message);
  // The connection is gone, whoever ended it. A node that was not dismissed before is lost.
  void Detach(PeerId peer, absl::string_view reason);

  // Ends all jobs and dismisses connections that have not joined one, because this process is about to exit: jobs as soon as
  // their workers are stopped, or at once. Agents that come later are told the same.
  void CloseAll(const std::string& reason, bool at_once = false);
  // Jobs that are not closed.
  int num_open_jobs() const;
  // Of the agents in other processes, as seen from here.
  std::vector<std::string> AgentAddresses() const;
  int num_peers() const { return machine_.num_peers(); }
  // Called after everything that happens.
  void set_on_step(std::function<void()> f) { on_step_ = std::move(f); }
  // For people and scripts: docs/protocol.md, "HTTP".
  boost::json::object Status() const;
  // What happened after the event with the number `after`, a line each.
  //   Errors of this and what follows: those of CoordinatorMachine::FindJob.
  absl::StatusOr<std::string> Events(const std::string& run_id, uint64_t after) const;

  // The agent of `node` and all its workers are gone; its warden, which knows `token`, says so.
  //   Errors: kNotFound: no such node; kPermissionDenied: another token.
  absl::Status ReportGone(const std::string& run_id, const NodeId& node, const std::string& token);
  // Takes a node out, by its id or its host. Returns, for people, what happens now.
  //   Errors: kNotFound: no such node; kInvalidArgument: the host has several; kFailedPrecondition: the job
  //   is closed, or the node hosts the coordinator.
  absl::StatusOr<std::string> Drain(const std::string& run_id, const std::string& node,
                                    const std::string& reason);
  // Ends a job.
  //   Errors: kFailedPrecondition: it is closed.
  absl::StatusOr<std::string> Stop(const std::string& run_id, const std::string& reason);

  // Every step from now on goes to `sink` as well. REQUIRES: nothing has happened yet.
  void RecordTo(StepSink sink) { recorder_.emplace(std::move(sink)); }

  CoordinatorMachine& machine_for_test() { return machine_; }

 private:
  void Step(const CoordinatorEvent& event);
  void Step(const CoordinatorEvent& event, TimePoint now);
  void Do(const Welcome& e);
  void Do(const Heard& e);
  void Do(const Order& e);
  void Do(const HangUp& e);
  void Do(const JobEvent& e);
  void Do(const LogLine& e);
  void Do(const JobRetired& e);
  void Do(const JobForgotten& e);
  void Do(const Answer& e);
  void WriteLog(const std::string& run_id, const NoteText& text);
  void Send(PeerId peer, SharedMessage message);
  void SetTimer();

  // Owns nothing.
  const std::shared_ptr<Coordinator> self_{this, [](Coordinator*) {}};
  const std::unique_ptr<WakeTimer> timer_;
  const Log log_;
  const CoordinatorLimits limits_;
  CoordinatorMachine machine_;
  std::map<PeerId, AgentPeer*> peers_;
  std::map<std::string, EventRing> events_;  // by run id
  PeerId next_peer_ = 1;
  std::optional<TimePoint> timer_at_;
  std::function<void()> on_step_;
  std::optional<StepRecorder> recorder_;  // none: nothing is recorded

  // Of the Step that is going on.
  TimePoint now_;
  absl::StatusOr<std::string> answer_;
  std::shared_ptr<const JobReport> report_;  // the last one that was encoded, as report_message_
  SharedMessage report_message_;
  std::string report_digest_;  // of report_message_, for the recorder; empty: not made yet
};

}  // namespace ddprun
