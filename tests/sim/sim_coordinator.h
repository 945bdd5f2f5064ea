// The coordinator's process: a RoundMachine behind connections, as rendezvous/server/coordinator.h has it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/round_machine.h"
#include "tests/sim/round_rules.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/sim_result.h"
#include "tests/sim/sim_workers.h"

namespace ddprun::sim {

// One life of it. A job whose last node has gone is forgotten, so that it can begin anew.
class SimCoordinator {
 public:
  using PeerId = uint64_t;
  // Bytes to an agent; `last`: nothing follows.
  using Send = std::function<void(const std::string& bytes, bool last)>;

  // What it has done so far.
  struct Load {
    int64_t messages = 0;    // that came and went
    double machine_cpu = 0;  // seconds of the RoundMachine and the codec; measured only if not checked
  };

  SimCoordinator(SimJob* job, SimHost* host, NodeFacts facts);
  SimCoordinator(const SimCoordinator&) = delete;
  SimCoordinator& operator=(const SimCoordinator&) = delete;

  void Listen();
  PeerId Attach(Send send, bool in_process);
  void Receive(PeerId peer, const std::string& bytes);
  void Detach(PeerId peer, const std::string& reason);

  // An operator's wish. False if there is no such node, or it cannot be taken out.
  bool DrainHost(const std::string& host);
  void StopJob();
  // Its launcher ends: all are told, and those who do not go are cut off after a while.
  void Close();
  // SIGKILL, or the end of its process.
  void Kill();
  // It stands still; what comes meanwhile is handled afterwards, in order.
  void Freeze();
  void Thaw();
  void ThawAll();  // however often it was frozen

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_ > 0; }
  // It has stood still for longer than its nodes' lease, less than a lease ago.
  bool has_slept() const;
  // It has a job that is over.
  bool closed() const { return machine_ != nullptr && machine_->state() == RoundMachine::State::kClosed; }
  const RoundMachine* machine() const { return machine_.get(); }  // null: no job
  const RoundRules* rules() const { return rules_.get(); }        // null: no job
  // Without the rules, which take longer than what they look at.
  void set_checked(bool checked) { checked_ = checked; }
  const Load& load() const { return load_; }
  // Adds what happened in it.
  void AddCounts(SimResult& result) const;
  // When the node was last heard, in simulated time; none: never.
  std::optional<TimePoint> heard(const NodeId& node) const;

 private:
  struct Peer {
    Send send;
    bool in_process = false;
    bool joined = false;
    NodeId node = {};  // empty: not in the job, or not any more
  };

  void InProcess(std::function<void()> what);
  void OnMessage(PeerId id, const std::string& bytes);
  void Join(PeerId id, const proto::Join& join);
  void Lost(PeerId id, const std::string& reason);
  void Step(const RoundEvent& event);
  void MaybeForget();
  void Count(SimResult& result) const;
  void SetTimer();

  SimJob* const job_;
  SimHost* const host_;
  const NodeFacts facts_;
  std::unique_ptr<RoundMachine> machine_;
  std::unique_ptr<RoundRules> rules_;
  std::map<PeerId, Peer> peers_;
  std::map<NodeId, PeerId> nodes_;
  std::map<NodeId, TimePoint> heard_;
  PeerId next_peer_ = 1;
  std::map<PeerId, SimSocket> sockets_;
  bool checked_ = true;
  Load load_;
  std::string closing_;
  SimResult before_;  // of jobs that are forgotten
  bool alive_ = true;
  int frozen_ = 0;
  TimePoint frozen_at_;
  TimePoint slept_until_;  // the last time that was long
  std::deque<std::function<void()>> held_;
  std::optional<TimePoint> timer_at_;
};

}  // namespace ddprun::sim
