#include "launcher/registered_job.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dismissal.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/uuid.h"
#include "base/wake_timer.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "launcher/agent/agent_machine.h"
#include "launcher/coordinator_log.h"
#include "net/endpoint.h"
#include "proto/value_codec.h"
#include "rendezvous/client/grpc_link.h"
#include "rendezvous/voters/grpc_vote_client.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// An error of the register is logged again after this time.
constexpr Duration kSilence = seconds(60);

void Rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

bool Lasts(const absl::Status& why) {
  return absl::IsInvalidArgument(why) || absl::IsFailedPrecondition(why) || absl::IsPermissionDenied(why) ||
         absl::IsUnauthenticated(why);
}

}  // namespace

// The link of the agent. Notifies JobLead when the agent becomes a node of the job, and whether it is a standby.
class RegisteredJob::Link final : public CoordinatorLink {
 public:
  // Sets the epoch of `job.attended_` to `epoch`, if it is known, when the coordinator has accepted the node.
  Link(std::unique_ptr<CoordinatorLink> link, RegisteredJob* job, std::optional<int64_t> epoch)
      : link_(std::move(link)), job_(*job), epoch_(epoch) {}

  void Start(Handlers handlers) override {
    handlers.on_message =
        [this, on_message = std::move(handlers.on_message)](const proto::CoordinatorMessage& message) {
          if (message.has_welcome()) {
            job_.attended_ = epoch_;
            job_.lead_->Connected(/*standby=*/job_.can_lead());
          }
          if (message.has_start()) OnStart(message.start());
          // Nothing is left to lead. The workers may need longer than a lease to stop.
          if (message.has_dismiss() && EndsTheJob(DecodeDismissal(message.dismiss().reason())))
            job_.lead_->Withdraw();
          on_message(message);
        };
    link_->Start(std::move(handlers));
  }
  void Send(const proto::AgentMessage& message) override { link_->Send(message); }
  void Close() override { link_->Close(); }

 private:
  void OnStart(const proto::Start& start) {
    if (start.epoch() > 0) job_.attended_ = start.epoch();
    proto::VoterSet message;
    if (job_.voters_ != nullptr && message.ParseFromString(start.voters())) {
      const absl::StatusOr<VoterSet> voters = DecodeVoters(message);
      if (voters.ok()) job_.voters_->Learn(*voters);
    }
    job_.lead_->Connected(start.group_rank() < JobLead::kStandbys && job_.can_lead());
  }

  const std::unique_ptr<CoordinatorLink> link_;
  RegisteredJob& job_;
  const std::optional<int64_t> epoch_;
};

RegisteredJob::RegisteredJob(asio::io_context& io, Parts parts)
    : io_(io), parts_(std::move(parts)), announce_timer_(io), search_timer_(io) {}

std::string RegisteredJob::own_address() const {
  // The founders have to agree on the addresses.
  if (several_found()) return parts_.endpoints[*parts_.own_endpoint];
  return ToString(Endpoint{parts_.address, host_->port()});
}

absl::StatusOr<std::unique_ptr<RegisteredJob>> RegisteredJob::Open(asio::io_context& io, Parts parts) {
  std::unique_ptr<RegisteredJob> job(new RegisteredJob(io, std::move(parts)));
  const Parts& p = job->parts_;
  ASSIGN_OR_RETURN(job->host_, CoordinatorHost::OpenFirst(io, p.listen, p.ports, CoordinatorLog(*p.log),
                                                          {.registered = true}));
  if (!p.record.empty()) {
    job->recording_ = RecordingFile::ForLead(io, p.record, p.log);
    job->host_->RecordTo(job->recording_->Sink());
  }
  if (p.charter_register == nullptr) job->MakeVoters();
  JobLead::Parts lead;
  lead.run_id = p.run_id;
  lead.lease = p.lease;
  lead.id = RandomUuid();
  lead.address = job->own_address();
  lead.charter_register = p.charter_register.get();
  lead.coordinator = &job->host_->coordinator();
  lead.timer = std::make_unique<AsioWakeTimer>(io);
  lead.on_leader = [j = job.get()](const JobLead::Leader& leader) { j->OnLeader(leader); };
  lead.on_over = [j = job.get()](const Charter::End& end) { j->OnOver(end); };
  lead.on_trouble = [j = job.get()](const absl::Status& why) { j->OnTrouble(why); };
  lead.on_lost = [j = job.get()](const absl::Status& why) { j->OnLost(why); };
  lead.log = CoordinatorLog(*p.log);
  if (job->voters_ != nullptr) {
    lead.register_outlives_job = false;
    lead.before_write = [j = job.get()](bool hands_over) { j->choice_->Prepare(*j->voters_, hands_over); };
    lead.complete_start = [j = job.get()](proto::Start& start) {
      start.set_voters(EncodeVoters(j->voters_->voters()).SerializeAsString());
    };
  }
  job->lead_.emplace(std::move(lead));
  p.log->Detail(absl::StrCat("coordinates on port ", job->host_->port(),
                             " when it leads; the register is kept by ", p.service));
  return job;
}

void RegisteredJob::MakeVoters() {
  VoterRegister::Parts parts;
  parts.run_id = parts_.run_id;
  parts.self = {.id = RandomUuid(), .address = own_address()};
  parts.founds = parts_.own_endpoint && !several_found();
  parts.seed = std::hash<std::string>()(parts.self.id);
  parts.timer = std::make_unique<AsioWakeTimer>(io_);
  parts.client = std::make_unique<GrpcVoteClient>(io_, parts_.run_id);
  choice_.emplace(&host_->coordinator(), own_address());
  parts.leading = [this] { return choice_->Leading(lead_->LeadLeft()); };
  parts.on_voters = [this](const VoterSet& voters) { OnVoters(voters); };
  auto voters = std::make_unique<VoterRegister>(std::move(parts));
  voters_ = voters.get();
  parts_.charter_register = std::move(voters);
  host_->ServeVotes([this](const proto::VoteRequest& request) { return voters_->Answer(request); });
  AnnounceLater();
}

void RegisteredJob::OnVoters(const VoterSet& voters) {
  std::vector<std::string> addresses;
  for (const Voter& voter : voters.now.voters) addresses.push_back(voter.address);
  const std::string list = absl::StrJoin(addresses, ", ");
  parts_.log->Event("voters", {{"job", parts_.run_id}, {"voters", list}});
  const bool votes = std::find(addresses.begin(), addresses.end(), own_address()) != addresses.end();
  if (!lead_->leads() || !votes) return;
  const size_t n = addresses.size();
  parts_.log->Say(
      n > 2 ? absl::StrCat("voters of job ", parts_.run_id, ": ", list, "; the job survives the loss of any ",
                           (n - 1) / 2, " of them")
            : absl::StrCat(
                  "voters of job ", parts_.run_id, ": ", list,
                  "; the loss of this node, the coordinator's, ends the job. With three or more hosts, with "
                  "`ddprun --store-only` at one of several endpoints, or with --rdzv-backend=etcd, it does "
                  "not"));
}

void RegisteredJob::AnnounceLater() {
  announce_timer_.expires_after(parts_.lease);
  announce_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    if (lead_->leads()) Announce();
    AnnounceLater();
  });
}

void RegisteredJob::Announce() {
  for (size_t i = 0; i < parts_.endpoints.size(); ++i) {
    if (i != parts_.own_endpoint) voters_->Announce(parts_.endpoints[i]);
  }
}

void RegisteredJob::Found(int64_t attempt) {
  const Duration limit = search_->limit;
  search_->end += seconds(1);  // so that the error names the endpoints that do not answer
  SetSearchTimer();
  voters_->Found(parts_.endpoints, std::make_unique<AsioWakeTimer>(io_), limit,
                 [this, attempt](const absl::Status& founded) {
                   if (!Current(attempt)) return;
                   if (founded.ok()) return lead_->Seek();
                   EndSearch(founded);
                 });
}

std::unique_ptr<CoordinatorLink> RegisteredJob::Follow(const FoundCoordinator& found) {
  found_ = found;
  return std::make_unique<Link>(MakeGrpcLink(io_, found.address, found.port, 2 * parts_.lease), this,
                                std::nullopt);
}

void RegisteredJob::Find(Duration limit, bool first, std::function<void(SearchResult)> done) {
  // No process can take over from the coordinator.
  if (!first && !can_lead()) limit = std::min(limit, parts_.lease + kSeekBeyondLease);
  const TimePoint end = std::chrono::steady_clock::now() + limit;
  ++attempts_;
  search_ = Search{.limit = limit, .end = end, .first = first, .done = std::move(done)};
  SetSearchTimer();
  // Later, because the leader may be known at once.
  asio::post(io_, [this, alive = std::weak_ptr<int>(alive_), attempt = attempts_] {
    if (alive.expired() || !Current(attempt)) return;
    if (can_lead()) return lead_->Seek();
    if (several_found()) return Found(attempt);
    // No round has started, so only the first coordinator has the job.
    asio::co_spawn(io_, Connect(attempts_, ToString(Endpoint{found_->address, found_->port}), std::nullopt),
                   Rethrow);
  });
}

void RegisteredJob::SetSearchTimer() {
  const TimePoint end = search_->end;
  search_timer_.expires_at(end);
  search_timer_.async_wait([this, alive = std::weak_ptr<int>(alive_),
                            end](const boost::system::error_code& error) {
    if (error || alive.expired() || !search_ || search_->end != end) return;
    const std::string obstacle =
        search_->obstacle.empty() ? absl::StrCat(parts_.service, " does not answer") : search_->obstacle;
    EndSearch(absl::UnavailableError(absl::StrCat("found no coordinator of job ", parts_.run_id, " within ",
                                                  InSeconds(search_->limit), ": ", obstacle)));
  });
}

void RegisteredJob::EndSearch(SearchResult result) {
  ++attempts_;
  search_timer_.cancel();
  const std::function<void(SearchResult)> done = std::move(search_->done);
  search_.reset();
  done(std::move(result));
}

void RegisteredJob::OnLeader(const JobLead::Leader& leader) {
  trouble_.clear();
  host_->SetLeader(leader.address);
  if (leader.here && recording_ != nullptr) recording_->Begin(leader.epoch);
  if (leader.here && voters_ != nullptr) Announce();
  if (!search_) return;
  ++attempts_;
  if (leader.here) {
    found_.reset();
    const std::string text = absl::StrCat("this node coordinates job ", parts_.run_id, " at ", own_address());
    // That is where everybody looks for the coordinator first.
    if (search_->first && parts_.own_endpoint && !several_found()) {
      parts_.log->Detail(text);
    } else {
      parts_.log->Say(text);
    }
    return EndSearch(std::make_unique<Link>(host_->Link(parts_.address), this, leader.epoch));
  }
  parts_.log->Detail(absl::StrCat("the coordinator is at ", leader.address));
  search_->obstacle = absl::StrCat("the coordinator at ", leader.address, " does not answer");
  // If it is lost, this process may lead the job itself when it has counted a lease.
  const Duration takeover = 2 * parts_.lease + seconds(1);
  const TimePoint now = std::chrono::steady_clock::now();
  if (search_->end < now + takeover) {
    search_->limit += now + takeover - search_->end;
    search_->end = now + takeover;
    SetSearchTimer();
  }
  asio::co_spawn(io_, Connect(attempts_, leader.address, leader.epoch), Rethrow);
}

asio::awaitable<void> RegisteredJob::Connect(int64_t attempt, std::string address,
                                             std::optional<int64_t> epoch) {
  const std::weak_ptr<int> alive = alive_;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(address, -1);
  if (!endpoint.ok()) {
    search_->obstacle =
        absl::StrCat("the register has a leader at ", address, ": ", endpoint.status().message());
    co_return;
  }
  while (Current(attempt)) {
    // `limits` is a local variable, because GCC 12 would destroy a temporary in the call below twice.
    FindLimits limits;
    const Duration left = search_->end - std::chrono::steady_clock::now();
    limits.total = std::max(epoch ? std::min(left, parts_.lease) : left, milliseconds(100) + Duration());
    limits.refusal_is_final = !epoch;
    // A node that has never reached the leader does not depose it.
    if (epoch && attended_ == epoch) {
      limits.on_refused = [this, alive, attempt, epoch] {
        if (!alive.expired() && Current(attempt)) lead_->LeaderGone(*epoch);
      };
    }
    limits.job = parts_.run_id;  // a process that has lost its lead no longer has it
    // The register may show the lead before that process has noticed that it leads; until then it names the last leader.
    limits.follows = !epoch;
    limits.trace = [log = parts_.log](absl::string_view text) { log->Detail(text); };
    const absl::StatusOr<FoundCoordinator> found =
        co_await FindCoordinator(endpoint->host, endpoint->port, limits, [](absl::string_view) {});
    if (alive.expired() || !Current(attempt)) co_return;
    if (found.ok()) {
      found_ = *found;
      // A leader that is stopped does not answer the join, and loses its lead meanwhile.
      EndSearch(std::make_unique<Link>(MakeGrpcLink(io_, found->address, found->port, 2 * parts_.lease), this,
                                       epoch));
      co_return;
    }
    if (!epoch) {
      EndSearch(found.status());
      co_return;
    }
    search_->obstacle = std::string(found.status().message());
    if (absl::IsUnavailable(found.status())) continue;
    // Something else listens there by now. Another leader may be elected.
    asio::steady_timer pause(io_, parts_.lease / 4);
    co_await pause.async_wait(asio::use_awaitable);
    if (alive.expired()) co_return;
  }
}

std::optional<std::pair<std::string, int>> RegisteredJob::ListenerForWarden() const {
  if (found_) return std::pair(found_->address, found_->port);
  return host_->coordinator().Standby();
}

void RegisteredJob::OnOver(const Charter::End& end) {
  if (!search_) return;
  // As RoundMachine says to a node that joins too late.
  const bool succeeded = end.outcome == Dismissal::kSucceeded;
  const Dismissal outcome = succeeded && search_->first ? Dismissal::kRejected : end.outcome;
  EndSearch(Dismissed{outcome, absl::StrCat("job ", parts_.run_id, " is over: ", end.text(),
                                            ". A new job needs another --rdzv-id")});
}

void RegisteredJob::OnTrouble(const absl::Status& why) {
  if (search_) search_->obstacle = std::string(why.message());
  if (search_ && search_->first && Lasts(why)) return EndSearch(why);
  // An outage is one line, not one for each attempt.
  const TimePoint now = std::chrono::steady_clock::now();
  const bool same = trouble_ == why.message();
  if (!trouble_.empty() && now - trouble_at_ < (same ? kSilence : kSilence / 10)) return;
  trouble_ = std::string(why.message());
  trouble_at_ = now;
  parts_.log->Event("register_trouble", {{"job", parts_.run_id}, {"reason", why.message()}});
  parts_.log->Say(absl::StrCat("the register of the job: ", why.message()));
}

void RegisteredJob::OnLost(const absl::Status& why) {
  if (search_) EndSearch(absl::UnavailableError(why.message()));
}

void RegisteredJob::CloseNow() {
  if (host_->coordinator().hands_over()) return;  // no node has workers
  lead_->Abandon();
  host_->CloseNow();
}

void RegisteredJob::Close(const std::string& reason, Duration farewell, std::function<void()> done) {
  search_.reset();
  search_timer_.cancel();
  announce_timer_.cancel();
  lead_->Withdraw();
  host_->Close(reason, farewell, [this, done = std::move(done)]() mutable {
    lead_->End([this, done = std::move(done)] {
      if (recording_ == nullptr) return done();
      recording_->Flush(done);
    });
  });
}

}  // namespace ddprun
