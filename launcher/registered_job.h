// The coordinator of a job with a register: each agent has one, and one at a time leads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_world.h"
#include "launcher/recording_file.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/client/find_coordinator.h"
#include "rendezvous/coordinator/job_lead.h"
#include "rendezvous/server/coordinator_host.h"
#include "rendezvous/server/voter_choice.h"
#include "rendezvous/voters/voter_register.h"

namespace ddprun {

// Finds the coordinator of a job by the job's register, and hosts it when this process leads the job.
//   Order:   Open, Find any number of times, Close once.
//   Threads: the thread of `io`.
class RegisteredJob {
 public:
  struct Parts {
    std::string run_id;
    Duration lease{};
    std::string address;                                          // at which the other nodes reach this node
    std::string listen;                                           // as for CoordinatorHost::Open
    std::vector<int> ports = {0};                                 // the first free one is used; 0: any
    std::unique_ptr<CharterRegister> charter_register = nullptr;  // null: the job's voters keep it
    // With voters: the places at which the nodes of the job look for the coordinator first, as HOST:PORT.
    std::vector<std::string> endpoints = {};
    // With voters: this process listens at this one of the endpoints. If there is one, the process founds the job, unless it exists;
    // if there are several, the processes at all of them do. nullopt: elsewhere.
    std::optional<size_t> own_endpoint = {};
    std::string record = {};        // as LaunchConfig::record
    std::string service;            // what keeps the register, for people: "etcd at etcd1:2379"
    const AgentLog* log = nullptr;  // must outlive this object
  };
  //   Errors: those of CoordinatorHost::Open.
  static absl::StatusOr<std::unique_ptr<RegisteredJob>> Open(boost::asio::io_context& io, Parts parts);
  RegisteredJob(const RegisteredJob&) = delete;
  RegisteredJob& operator=(const RegisteredJob&) = delete;

  // Finds the coordinator, within `limit`, or, once a leader is known, within the time that a takeover takes if that is longer.
  // Ends a previous search, whose `done` is not called. `done` is never called from within this call. Its link
  // observes the agent's membership for this object, and must not outlive it.
  //   first: the agent is new to the job. Then an error of the register that lasts, such as a wrong password, ends the search at
  //          once, and so does a job that has succeeded, with an error.
  void Find(Duration limit, bool first, std::function<void(SearchResult)> done);
  // With voters: connects to the coordinator that was found at the endpoint.
  std::unique_ptr<CoordinatorLink> Follow(const FoundCoordinator& found);
  // The coordinator in another process that was found last; nullopt if this process leads.
  const std::optional<FoundCoordinator>& found() const { return found_; }
  // Where this node's warden reports that all processes of the node have exited: the coordinator, or, if this process leads, a
  // standby. nullopt: there is none.
  std::optional<std::pair<std::string, int>> ListenerForWarden() const;
  CoordinatorHost& host() { return *host_; }
  // Parts::address
  const std::string& address() const { return parts_.address; }

  // Hands the job over, or says in the register that it is over, if this process leads. See CoordinatorHost::Close.
  void Close(const std::string& reason, Duration farewell, std::function<void()> done);
  // Ends the wait for workers of Close. Another agent leads a lease later.
  void CloseNow();

 private:
  class Link;
  struct Search {
    Duration limit{};
    TimePoint end;
    bool first = false;
    std::function<void(SearchResult)> done;
    std::string obstacle = {};  // why it has not succeeded yet
  };

  RegisteredJob(boost::asio::io_context& io, Parts parts);

  void MakeVoters();
  // Founds the job together with the processes at the other endpoints.
  void Found(int64_t attempt);
  void OnVoters(const VoterSet& voters);
  void AnnounceLater();
  void Announce();
  // HOST:PORT at which other nodes reach the coordinator of this process.
  std::string own_address() const;
  // Whether this process knows the register. Without voters there is nothing to observe: no round has started, or the coordinator is
  // one of --store-only, which has no register.
  bool can_lead() const { return voters_ == nullptr || voters_->voters().number > 0; }
  bool several_found() const { return parts_.own_endpoint && parts_.endpoints.size() > 1; }
  void OnLeader(const JobLead::Leader& leader);
  void OnOver(const Charter::End& end);
  void OnTrouble(const absl::Status& why);
  void OnLost(const absl::Status& why);
  // Connects to the leader at `address` until another one is found or the search ends.
  //   epoch: of the leader; nullopt: unknown, because the job has no round yet. Then a refused connection ends the search.
  boost::asio::awaitable<void> Connect(int64_t attempt, std::string address, std::optional<int64_t> epoch);
  bool Current(int64_t attempt) const { return search_ && attempt == attempts_; }
  void SetSearchTimer();
  void EndSearch(SearchResult result);

  boost::asio::io_context& io_;
  Parts parts_;
  VoterRegister* voters_ = nullptr;    // parts_.charter_register; null: something else keeps the register
  std::optional<VoterChoice> choice_;  // set with voters_
  boost::asio::steady_timer announce_timer_;
  std::unique_ptr<RecordingFile> recording_;  // null: no recording
  std::unique_ptr<CoordinatorHost> host_;
  std::optional<JobLead> lead_;
  std::optional<Search> search_;  // nullopt: none is in progress
  boost::asio::steady_timer search_timer_;
  int64_t attempts_ = 0;  // number of the current attempt to connect
  std::optional<FoundCoordinator> found_;
  std::optional<int64_t> attended_;  // epoch of the last leader of whose job the agent was a node
  std::string trouble_;              // the last error of the register that was logged
  TimePoint trouble_at_;             // when
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // checked by coroutines
};

}  // namespace ddprun
