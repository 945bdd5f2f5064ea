#include "tests/sim/world/sim_registered_job.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dismissal.h"
#include "proto/value_codec.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/voters/vote_codec.h"
#include "tests/sim/world/sim_timer.h"

namespace ddprun::sim {
namespace {

// Between two attempts to connect; see rendezvous/client/find_coordinator.cc.
constexpr Duration kPause = milliseconds(100);
// How long a process may take to answer.
constexpr Duration kAnswerLimit = seconds(1);

SimRegisteredJob::Where ParseAddress(const std::string& address) {
  SimRegisteredJob::Where where;
  std::sscanf(address.c_str(), "%d:%d", &where.host, &where.port);
  return where;
}

}  // namespace

SimRegisteredJob::SimRegisteredJob(Parts parts)
    : parts_(std::move(parts)),
      coordinator_(parts_.job, parts_.host, parts_.facts,
                   SimCoordinator::Registered{.port = parts_.port,
                                              .observe =
                                                  [this](const proto::CoordinatorMessage& message) {
                                                    parts_.rules->Sent(parts_.id, message);
                                                  }}),
      register_(MakeRegister()) {
  const auto log = [this](absl::string_view event, absl::string_view, absl::string_view reason) {
    parts_.job->trace->Line(parts_.job->clock->now(), absl::StrCat(parts_.id, " ", event, ": ", reason));
    if (event == "lead_lost") parts_.rules->Lost(parts_.id, std::string(reason));
  };
  JobLead::Parts lead;
  lead.run_id = "sim";
  lead.lease = parts_.job->settings->rules.lease;
  lead.id = parts_.id;
  lead.address = own_address();
  lead.charter_register = register_.get();
  lead.coordinator = &coordinator_.real();
  lead.timer = std::make_unique<SimTimer>(parts_.host, parts_.job->trace, [this](std::function<void()> what) {
    coordinator_.InProcess(std::move(what));
  });
  lead.boot_now = [host = parts_.host] { return BootTime(host->now().time_since_epoch()); };
  lead.on_leader = [this](const JobLead::Leader& leader) { OnLeader(leader); };
  lead.on_over = [this](const Charter::End& end) { OnOver(end); };
  lead.on_trouble = [](const absl::Status&) {};
  lead.on_lost = [this](const absl::Status& why) {
    if (search_) EndSearch(absl::UnavailableError(why.message()));
  };
  lead.log = log;
  if (voters_ != nullptr) {
    lead.register_outlives_job = false;
    lead.before_write = [this](bool hands_over) { choice_->Prepare(*voters_, hands_over); };
    lead.complete_start = [this](proto::Start& start) {
      start.set_voters(EncodeVoters(voters_->voters()).SerializeAsString());
    };
  }
  lead_.emplace(std::move(lead));
  coordinator_.Listen();
  if (voters_ != nullptr && !parts_.voting->founds) AnnounceLater();
}

std::string SimRegisteredJob::own_address() const {
  return absl::StrCat(parts_.host->id(), ":", parts_.port);
}

std::unique_ptr<CharterRegister> SimRegisteredJob::MakeRegister() {
  if (parts_.voting) return MakeVoters();
  return parts_.charter_register->Connect(
      parts_.host, [this](std::function<void()> what) { coordinator_.InProcess(std::move(what)); });
}

std::unique_ptr<CharterRegister> SimRegisteredJob::MakeVoters() {
  const SimTimer::InProcess in_process = [this](std::function<void()> what) {
    coordinator_.InProcess(std::move(what));
  };
  auto client = std::make_unique<SimVoteClient>(parts_.host, parts_.job->tcp, in_process,
                                                [voters = parts_.voting->voters](const VoteRequest& request) {
                                                  if (request.record)
                                                    voters->Proposed(request.record->voters);
                                                });
  vote_client_ = client.get();
  VoterRegister::Parts parts;
  parts.run_id = "sim";
  parts.self = {.id = parts_.id, .address = own_address()};
  parts.founds = parts_.voting->founds;
  parts.seed = parts_.job->settings->seed + static_cast<uint64_t>(parts_.port);
  parts.timer = std::make_unique<SimTimer>(parts_.host, parts_.job->trace, in_process);
  parts.client = std::move(client);
  choice_.emplace(&coordinator_.real(), own_address());
  parts.leading = [this] { return choice_->Leading(lead_->LeadLeft()); };
  parts.on_voters = [this](const VoterSet& voters) {
    const auto id = [](std::string* out, const Voter& voter) { out->append(voter.id); };
    parts_.job->trace->Line(parts_.job->clock->now(),
                            absl::StrCat(parts_.id, " knows voters ", voters.number, ": ",
                                         absl::StrJoin(voters.now.voters, ", ", id)));
    parts_.voting->voters->Chosen(voters);
  };
  auto voters = std::make_unique<VoterRegister>(std::move(parts));
  voters_ = voters.get();
  parts_.voting->voters->Chosen(voters_->voters());
  vote_server_ = std::make_unique<SimVoteServer>(
      parts_.host, parts_.job->tcp, parts_.port, in_process,
      [this](const proto::VoteRequest& request) { return voters_->Answer(request); });
  return parts_.voting->watch->Watch(std::move(voters));
}

void SimRegisteredJob::AnnounceLater() {
  After(parts_.job->settings->rules.lease, [this] {
    const Voting& voting = *parts_.voting;
    if (lead_->leads()) voters_->Announce(absl::StrCat(voting.endpoint_host, ":", voting.endpoint_port));
    AnnounceLater();
  });
}

void SimRegisteredJob::After(Duration d, std::function<void()> what) {
  parts_.host->After(d, [this, what = std::move(what)] { coordinator_.InProcess(what); });
}

void SimRegisteredJob::Find(Duration limit, bool first, MakeLink make_link,
                            std::function<void(SearchResult)> done) {
  const TimePoint end = parts_.host->now() + limit;
  ++attempts_;
  link_.reset();
  search_ = Search{.end = end,
                   .first = first,
                   .make_link = std::move(make_link),
                   .done = std::move(done),
                   .refusal_is_final = !first && !may_lead()};
  After(limit, [this, end] {
    if (search_ && search_->end == end) EndSearch(absl::UnavailableError("found no coordinator in time"));
  });
  // Later, because the leader may be known at once.
  After(Duration(0), [this, attempt = attempts_] {
    if (!Current(attempt)) return;
    if (may_lead()) return lead_->Seek();
    // No round has started, so only the first coordinator has the job.
    const Where endpoint{parts_.voting->endpoint_host, parts_.voting->endpoint_port};
    Probe(attempt, search_->first ? endpoint : found_.value_or(endpoint));
  });
}

void SimRegisteredJob::Received(const proto::CoordinatorMessage& message) {
  if (message.has_welcome()) lead_->Connected(/*standby=*/may_lead());
  if (message.has_dismiss() && EndsTheJob(DecodeDismissal(message.dismiss().reason()))) lead_->Withdraw();
  if (!message.has_start()) return;
  const proto::Start& start = message.start();
  proto::VoterSet set;
  if (voters_ != nullptr && set.ParseFromString(start.voters())) {
    if (const absl::StatusOr<VoterSet> voters = DecodeVoters(set); voters.ok()) voters_->Learn(*voters);
  }
  lead_->Connected(start.group_rank() < JobLead::kStandbys);
}

void SimRegisteredJob::EndSearch(SearchResult result) {
  ++attempts_;
  const std::function<void(SearchResult)> done = std::move(search_->done);
  search_.reset();
  // The agent drops links that are not needed, so it takes over the one that has been found.
  done(std::move(result));
}

void SimRegisteredJob::OnLeader(const JobLead::Leader& leader) {
  if (leader.here && leader.epoch != std::exchange(epoch_, leader.epoch)) {
    parts_.rules->Began(parts_.id, leader.epoch, coordinator_.machine());
    coordinator_.BeginRules();
  }
  coordinator_.SetLeader(leader.address);
  if (!search_) return;
  ++attempts_;
  link_.reset();
  if (leader.here) {
    found_.reset();
    return EndSearch(search_->make_link(&coordinator_, parts_.host->id(), parts_.port));
  }
  search_->refusal_is_final = false;
  Probe(attempts_, ParseAddress(leader.address));
}

void SimRegisteredJob::Probe(int64_t attempt, Where at) {
  Ask(at, [this, attempt, at](const Answer& answer) {
    if (!Current(attempt)) return;
    if (answer.has_job) return Connect(attempt, at, at);
    if (answer.refused && search_->refusal_is_final)
      return EndSearch(absl::UnavailableError("the coordinator refuses connections"));
    if (voters_ == nullptr || !answer.leader) return ProbeLater(attempt, at);
    Ask(*answer.leader, [this, attempt, at, leader = *answer.leader](const Answer& of_leader) {
      if (!Current(attempt)) return;
      if (of_leader.has_job) return Connect(attempt, leader, at);
      ProbeLater(attempt, at);
    });
  });
}

void SimRegisteredJob::ProbeLater(int64_t attempt, Where at) {
  After(kPause, [this, attempt, at] {
    if (Current(attempt)) Probe(attempt, at);
  });
}

void SimRegisteredJob::Ask(Where at, std::function<void(const Answer&)> done) {
  auto socket = std::make_shared<SimSocket>();
  auto ended = std::make_shared<bool>(false);
  SimTcp* const tcp = parts_.job->tcp;
  const auto end = [socket, ended, tcp, done = std::move(done)](const Answer& answer) {
    if (std::exchange(*ended, true)) return;
    tcp->Close(*socket);
    done(answer);
  };
  const auto in_process = [this](std::function<void()> what) { coordinator_.InProcess(std::move(what)); };
  *socket = tcp->Connect(parts_.host->id(), at.host, at.port + SimCoordinator::kJobPortOffset,
                         {.on_open = [tcp, socket] { tcp->Send(*socket, "has it the job?"); },
                          .on_message =
                              [end, in_process](const std::string& text) {
                                in_process([end, text] {
                                  Answer answer{.has_job = text == "yes"};
                                  if (absl::StartsWith(text, "at "))
                                    answer.leader = ParseAddress(text.substr(3));
                                  end(answer);
                                });
                              },
                          .on_end =
                              [end, in_process](StreamEnd why) {
                                in_process([end, why] { end({.refused = why == StreamEnd::kRefused}); });
                              }});
  After(kAnswerLimit, [end] { end({}); });
}

void SimRegisteredJob::Connect(int64_t attempt, Where at, Where origin) {
  link_ = search_->make_link(nullptr, at.host, at.port);
  // A leader that is stopped does not answer the join, and loses its lead meanwhile.
  link_->Find(2 * parts_.job->settings->rules.lease, /*once=*/true,
              [this, attempt, at, origin](const absl::Status& status) {
                if (!Current(attempt)) return;
                if (!status.ok()) return ProbeLater(attempt, origin);
                found_ = at;
                EndSearch(std::move(link_));
              });
}

void SimRegisteredJob::OnOver(const Charter::End& end) {
  if (!search_) return;
  const bool succeeded = end.outcome == Dismissal::kSucceeded;
  EndSearch(Dismissed{succeeded && search_->first ? Dismissal::kRejected : end.outcome, end.why});
}

void SimRegisteredJob::Close(bool at_once) {
  search_.reset();
  link_.reset();
  if (!std::exchange(ending_, true)) lead_->Withdraw();
  if (at_once) lead_->Abandon();
  coordinator_.CloseRegistered(at_once, [this] { lead_->End([this] { Kill(); }); });
}

void SimRegisteredJob::Kill() {
  search_.reset();
  link_.reset();
  if (!coordinator_.alive()) return;
  parts_.job->trace->Line(parts_.job->clock->now(), absl::StrCat(parts_.id, " has exited"));
  coordinator_.Kill();
  if (voters_ == nullptr) return;
  vote_client_->Stop();
  vote_server_->Stop();
}

}  // namespace ddprun::sim
