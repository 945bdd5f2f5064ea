// The shell around CoordinatorMachine: decodes messages of agents, encodes messages to them, and owns the
// timer. Shared by production and simulation, which use different timers and peers.
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

// Shared, since the same message may be sent to all nodes, and slow nodes receive it later.
using SharedMessage = std::shared_ptr<const proto::CoordinatorMessage>;

// An agent's connection, as the coordinator sees it. Called on the coordinator's thread.
class AgentPeer {
 public:
  virtual ~AgentPeer() = default;
  virtual void Send(SharedMessage message) = 0;
  // Ends the connection; no message follows.
  virtual void End() = 0;
  // The address of the agent, as seen from here.
  virtual std::string address() const = 0;
  // True for the agent in the coordinator's own process, which has no lease.
  virtual bool in_process() const = 0;
};

//   Threads: all calls on the thread of the timer, except weak().
class Coordinator {
 public:
  // Called for every transition: "round_sealed", run id, reason.
  using Log =
      std::function<void(absl::string_view event, absl::string_view run_id, absl::string_view reason)>;

  Coordinator(std::unique_ptr<WakeTimer> timer, Log log, CoordinatorLimits limits = {});
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Returns a pointer for handlers that may outlive the coordinator. weak() may be called, and the pointer
  // copied, on any thread; lock the pointer on the coordinator's thread only.
  std::weak_ptr<Coordinator> weak() { return self_; }

  // Adds a connection, whose first message must be a join. `peer` is borrowed until Detach.
  PeerId Attach(AgentPeer* peer);
  void Receive(PeerId peer, const proto::AgentMessage& message);
  // The connection was closed by either side. The peer's node is lost unless it was dismissed before.
  void Detach(PeerId peer, absl::string_view reason);

  // Ends all jobs because this process is about to exit: at once, or as soon as their workers have stopped.
  // Dismisses agents that have not joined a job and agents that join later.
  void CloseAll(const std::string& reason, bool at_once = false);
  // Jobs that are not closed.
  int num_open_jobs() const;
  // The addresses of agents in other processes, as seen from here.
  std::vector<std::string> AgentAddresses() const;
  int num_peers() const { return machine_.num_peers(); }
  // `f` is invoked after every step.
  void set_on_step(std::function<void()> f) { on_step_ = std::move(f); }
  // The status page. Source: docs/protocol.md, "HTTP".
  boost::json::object Status() const;
  // The events after number `after`, one per line.
  //   Errors: those of CoordinatorMachine::FindJob, which Drain and Stop may return as well.
  absl::StatusOr<std::string> Events(const std::string& run_id, uint64_t after) const;

  // Reports that the agent of `node` and all its workers have exited. `token` is the secret held by
  // the node's warden.
  //   Errors: kNotFound: no such node; kPermissionDenied: wrong token.
  absl::Status ReportGone(const std::string& run_id, const NodeId& node, const std::string& token);
  // Takes a node, given by its id or host, out of its job. Returns a text for people that says what happens
  // next.
  //   Errors: kNotFound: no such node; kInvalidArgument: the host has several nodes;
  //           kFailedPrecondition: the job is closed, or the node hosts the coordinator.
  absl::StatusOr<std::string> Drain(const std::string& run_id, const std::string& node,
                                    const std::string& reason);
  // Ends a job.
  //   Errors: kFailedPrecondition: the job is closed.
  absl::StatusOr<std::string> Stop(const std::string& run_id, const std::string& reason);

  // Records every step to `sink`. REQUIRES: no step has been taken.
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

  // Non-owning.
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
  std::optional<StepRecorder> recorder_;  // nullopt: nothing is recorded

  // State of the current Step.
  TimePoint now_;
  absl::StatusOr<std::string> answer_;
  std::shared_ptr<const JobReport> report_;  // the report encoded in report_message_
  SharedMessage report_message_;
  std::string report_digest_;  // of report_message_, for the recorder; empty: not computed
};

}  // namespace ddprun
