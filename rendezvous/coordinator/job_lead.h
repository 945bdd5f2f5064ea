// This process's part in the lead of a job: follows the job's register, and leads the job with a Coordinator when it may.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dismissal.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "os/boot_clock.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/charter/leadership.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/core/charter.h"

namespace ddprun {

//   Order:   Seek first; not after Withdraw. Abandon and End at most once; End is the last call.
//   Threads: the thread of the timer, which is also that of the register and the coordinator.
class JobLead final : private CharterKeeper {
 public:
  // The nodes with group ranks below this number, and those without a rank, are standbys. More of them would only add load to
  // the register's service.
  static constexpr int kStandbys = 5;

  // Who leads the job.
  struct Leader {
    bool here = false;         // this process
    std::string address = {};  // HOST:PORT; empty if it is this process
    int64_t epoch = 0;
  };
  struct Parts {
    std::string run_id;
    Duration lease{};
    std::string id;                               // as LeadershipRules::id
    std::string address;                          // as LeadershipRules::address
    CharterRegister* charter_register = nullptr;  // must outlive this object
    // Whether the register still exists when all processes of the job have exited. If not, the end of a job is not written: those
    // who would have to keep it have ended, too.
    bool register_outlives_job = true;
    Coordinator* coordinator = nullptr;  // has CoordinatorLimits::registered; must outlive this object
    std::unique_ptr<WakeTimer> timer;
    std::function<BootTime()> boot_now = &BootClock::now;
    // The handlers are called from handlers of the timer, the register and the coordinator, and from Seek. They may call Seek
    // and Connected, but do not destroy this object.
    //
    // There is a leader. Called again when another process leads; not while the agent is connected, unless this process leads.
    std::function<void(const Leader& leader)> on_leader;
    // The job is over, and has no further leader.
    std::function<void(const Charter::End& end)> on_over;
    // The register cannot be used at present, or only with other options. Called for each attempt that fails.
    std::function<void(const absl::Status& why)> on_trouble;
    // The register is lost, and with it the job, as far as this process knows.
    std::function<void(const absl::Status& why)> on_lost = [](const absl::Status&) {};
    // The charter is about to be written, or, with `hands_over`, the job to be handed over; may be empty. Must not call this object
    // or the coordinator's methods that change it.
    std::function<void(bool hands_over)> before_write;
    // Adds the voters to an order to start a round; may be empty.
    std::function<void(proto::Start& start)> complete_start;
    Coordinator::Log log;  // "leader_found", "lead_begun", "lead_lost", "lead_ended"
  };

  explicit JobLead(Parts parts);
  JobLead(const JobLead&) = delete;
  JobLead& operator=(const JobLead&) = delete;

  // The agent needs a coordinator. If the leader is known, on_leader is called within this call.
  void Seek();
  // The agent is a node of the leader's job. standby: this process takes over without a delay if the leader is lost.
  void Connected(bool standby);
  // The process that leads with this epoch no longer serves: it refuses connections, and the agent was a node of its job before.
  void LeaderGone(int64_t epoch) { Step(ddprun::LeaderGone{epoch}); }
  bool leads() const { return machine_.state() == LeadershipMachine::State::kLeading; }
  // For how long this process leads if its lead is not renewed; zero if it does not lead.
  Duration LeadLeft() const override;

  // This process ends soon, and does not try to lead any more.
  void Withdraw();
  // This process ends although nodes of its job may still have workers. It writes nothing more, and the others count a lease.
  void Abandon() { abandoned_ = true; }
  // Ends the lead of this process, if it leads, and then calls `done`, at the latest after the rest of its lead. Without a
  // hand-over and unless the job is over, nothing is written: the others count a lease. The register keeps the end of a job,
  // except of one that may succeed if it is started again: that one is forgotten.
  void End(std::function<void()> done);

 private:
  void Write(int64_t number, const Charter& charter) override;
  void HandOver(bool forget) override;
  void Complete(proto::Start& start) const override;

  // Takes care of what Write and HandOver have left as soon as the coordinator's step is complete: a step must not be called
  // back.
  void WakeSoon();
  void Step(const LeadershipEvent& event);
  void Do(const ReadRegister& e);
  void Do(const SwapRegister& e);
  void Do(const FollowLeader& e);
  void Do(const ddprun::BeginToLead& e);
  void Do(const ddprun::CharterWritten& e);
  void Do(const LeadLost& e);
  void Do(const LeadEnded& e);
  void Do(const JobIsOver& e);
  void Do(const RegisterFails& e);
  // Ends the lead if that is due and all charters are written.
  void EndLeadIfWritten();
  void SetTimer();
  void Wake();

  Parts parts_;
  LeadershipMachine machine_;
  std::vector<std::string> charters_to_write_;  // encoded, oldest first
  bool wakes_soon_ = false;
  int64_t charters_ = 0;               // number of the charters of this lead
  int64_t written_ = 0;                // number of those in the register
  std::optional<Dismissal> outcome_;   // of the newest charter
  std::optional<Lead::State> ending_;  // the lead is to end with this state
  std::optional<Charter::End> over_;   // set: the job is over, and has no further leader
  bool withdrawn_ = false;
  bool abandoned_ = false;
  bool ends_soon_ = false;       // nothing is to be written before ended_
  std::function<void()> ended_;  // of End
};

}  // namespace ddprun
