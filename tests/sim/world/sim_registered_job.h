// What a process of a job with a register has besides its agent: its coordinator and its part in the lead. The counterpart of
// launcher/registered_job.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "launcher/agent/agent_world.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/coordinator/job_lead.h"
#include "rendezvous/server/voter_choice.h"
#include "rendezvous/voters/voter_register.h"
#include "tests/sim/world/register_watch.h"
#include "tests/sim/world/sim_coordinator.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_link.h"
#include "tests/sim/world/sim_register.h"
#include "tests/sim/world/sim_voters.h"
#include "tests/sim/world/sim_votes.h"
#include "tests/sim/world/takeover_rules.h"

namespace ddprun::sim {

//   Order: Find any number of times, Close once. Kill at any time.
class SimRegisteredJob {
 public:
  // Of the voters of a job.
  struct Voting {
    RegisterWatch* watch = nullptr;
    SimVoters* voters = nullptr;
    bool founds = false;  // this process is at the endpoint
    // Where nodes look for the coordinator first.
    HostId endpoint_host = 0;
    int endpoint_port = 0;
  };
  struct Parts {
    SimJob* job = nullptr;
    SimHost* host = nullptr;
    SimRegister* charter_register = nullptr;  // null: the voters keep it
    std::optional<Voting> voting = {};
    TakeoverRules* rules = nullptr;
    std::string id;  // of the candidate
    int port = 0;
    NodeFacts facts;
  };
  // Returns a link of the agent to the coordinator in this process, or in another one.
  using MakeLink = std::function<std::unique_ptr<SimLink>(SimCoordinator* local, HostId host, int port)>;

  explicit SimRegisteredJob(Parts parts);
  SimRegisteredJob(const SimRegisteredJob&) = delete;
  SimRegisteredJob& operator=(const SimRegisteredJob&) = delete;

  void Find(Duration limit, bool first, MakeLink make_link, std::function<void(SearchResult)> done);
  // The agent has received `message`.
  void Received(const proto::CoordinatorMessage& message);
  // The agent has exited by itself. Called again: after another signal.
  void Close(bool at_once);
  void Kill();

  bool leads() const { return coordinator_.alive() && lead_->leads(); }
  SimCoordinator& coordinator() { return coordinator_; }
  const SimCoordinator& coordinator() const { return coordinator_; }
  // Whether this process takes part in the election of a leader: it knows the register.
  bool may_lead() const { return voters_ == nullptr || voters_->voters().number > 0; }
  // Where the coordinator is that Find has found last.
  struct Where {
    HostId host = 0;
    int port = 0;
    int gone_port() const { return port + SimCoordinator::kGonePortOffset; }
  };
  const std::optional<Where>& found() const { return found_; }  // nullopt: in this process

 private:
  struct Search {
    TimePoint end;  // of the host's clock
    bool first = false;
    MakeLink make_link;
    std::function<void(SearchResult)> done;
    bool refusal_is_final = false;
  };
  struct Answer {
    bool has_job = false;
    bool refused = false;
    std::optional<Where> leader = {};  // has the job, as far as the process knows
  };

  std::unique_ptr<CharterRegister> MakeRegister();
  std::unique_ptr<CharterRegister> MakeVoters();
  void AnnounceLater();
  std::string own_address() const;
  void OnLeader(const JobLead::Leader& leader);
  void OnOver(const Charter::End& end);
  bool Current(int64_t attempt) const { return search_ && attempt == attempts_; }
  // Asks the process at this address whether it has the job, and connects to it if so, or, with voters, to the leader that it
  // knows. Tries until another leader is found.
  void Probe(int64_t attempt, Where at);
  void ProbeLater(int64_t attempt, Where at);
  void Ask(Where at, std::function<void(const Answer&)> done);
  // Probes `origin` again if this does not succeed.
  void Connect(int64_t attempt, Where at, Where origin);
  void After(Duration d, std::function<void()> what);
  void EndSearch(SearchResult result);

  const Parts parts_;
  SimCoordinator coordinator_;
  // Null if something else keeps the register.
  VoterRegister* voters_ = nullptr;
  SimVoteClient* vote_client_ = nullptr;
  std::unique_ptr<SimVoteServer> vote_server_;
  std::optional<VoterChoice> choice_;  // set with voters_
  const std::unique_ptr<CharterRegister> register_;
  std::optional<JobLead> lead_;
  std::optional<Search> search_;
  std::unique_ptr<SimLink> link_;  // while Connect waits
  std::shared_ptr<SimSocket> probe_;
  int64_t attempts_ = 0;
  std::optional<Where> found_;
  int64_t epoch_ = 0;  // of the last lead of this process
  bool ending_ = false;
};

}  // namespace ddprun::sim
