#include "tests/sim/world/sim_registered_job.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/dismissal.h"
#include "tests/sim/world/sim_timer.h"

namespace ddprun::sim {
namespace {

// Between two attempts to connect; see rendezvous/client/find_coordinator.cc.
constexpr Duration kPause = milliseconds(100);
// How long a process may take to answer.
constexpr Duration kAnswerLimit = seconds(1);

}  // namespace

SimRegisteredJob::SimRegisteredJob(Parts parts)
    : parts_(std::move(parts)),
      coordinator_(parts_.job, parts_.host, parts_.facts,
                   SimCoordinator::Registered{.port = parts_.port,
                                              .observe =
                                                  [this](const proto::CoordinatorMessage& message) {
                                                    parts_.rules->Sent(parts_.id, message);
                                                  }}),
      register_(parts_.charter_register->Connect(
          parts_.host, [this](std::function<void()> what) { coordinator_.InProcess(std::move(what)); })) {
  const auto log = [this](absl::string_view event, absl::string_view, absl::string_view reason) {
    parts_.job->trace->Line(parts_.job->clock->now(), absl::StrCat(parts_.id, " ", event, ": ", reason));
    if (event == "lead_lost") parts_.rules->Lost(parts_.id, std::string(reason));
  };
  JobLead::Parts lead;
  lead.run_id = "sim";
  lead.lease = parts_.job->settings->rules.lease;
  lead.id = parts_.id;
  lead.address = absl::StrCat(parts_.host->id(), ":", parts_.port);
  lead.charter_register = register_.get();
  lead.coordinator = &coordinator_.real();
  lead.timer = std::make_unique<SimTimer>(parts_.host, parts_.job->trace, [this](std::function<void()> what) {
    coordinator_.InProcess(std::move(what));
  });
  lead.boot_now = [host = parts_.host] { return BootTime(host->now().time_since_epoch()); };
  lead.on_leader = [this](const JobLead::Leader& leader) { OnLeader(leader); };
  lead.on_over = [this](const Charter::End& end) { OnOver(end); };
  lead.on_trouble = [](const absl::Status&) {};
  lead.log = log;
  lead_.emplace(std::move(lead));
  coordinator_.Listen();
}

void SimRegisteredJob::After(Duration d, std::function<void()> what) {
  parts_.host->After(d, [this, what = std::move(what)] { coordinator_.InProcess(what); });
}

void SimRegisteredJob::Find(Duration limit, bool first, MakeLink make_link,
                            std::function<void(SearchResult)> done) {
  const TimePoint end = parts_.host->now() + limit;
  ++attempts_;
  link_.reset();
  search_ = Search{end, first, std::move(make_link), std::move(done)};
  After(limit, [this, end] {
    if (search_ && search_->end == end) EndSearch(absl::UnavailableError("found no coordinator in time"));
  });
  // Later, because the leader may be known at once.
  After(Duration(0), [this, attempt = attempts_] {
    if (Current(attempt)) lead_->Seek();
  });
}

void SimRegisteredJob::Received(const proto::CoordinatorMessage& message) {
  if (message.has_welcome()) lead_->Connected(/*standby=*/true);
  if (message.has_start()) lead_->Connected(message.start().group_rank() < JobLead::kStandbys);
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
  if (!search_) return;
  ++attempts_;
  link_.reset();
  if (leader.here) {
    found_.reset();
    return EndSearch(search_->make_link(&coordinator_, parts_.host->id(), parts_.port));
  }
  int host = 0, port = 0;
  std::sscanf(leader.address.c_str(), "%d:%d", &host, &port);
  Probe(attempts_, host, port);
}

void SimRegisteredJob::Probe(int64_t attempt, HostId host, int port) {
  auto socket = std::make_shared<SimSocket>();
  auto ended = std::make_shared<bool>(false);
  SimTcp* const tcp = parts_.job->tcp;
  // Ends this probe once: connects if the process has the job, and tries again otherwise.
  const auto end = [this, attempt, host, port, socket, ended, tcp](bool has_job) {
    if (std::exchange(*ended, true)) return;
    tcp->Close(*socket);
    if (!Current(attempt)) return;
    if (has_job) return Connect(attempt, host, port);
    After(kPause, [this, attempt, host, port] {
      if (Current(attempt)) Probe(attempt, host, port);
    });
  };
  const auto in_process = [this](std::function<void()> what) { coordinator_.InProcess(std::move(what)); };
  *socket = tcp->Connect(
      parts_.host->id(), host, port + SimCoordinator::kJobPortOffset,
      {.on_open = [tcp, socket] { tcp->Send(*socket, "has it the job?"); },
       .on_message = [end, in_process](
                         const std::string& answer) { in_process([end, answer] { end(answer == "yes"); }); },
       .on_end = [end, in_process](StreamEnd) { in_process([end] { end(false); }); }});
  After(kAnswerLimit, [end] { end(false); });
}

void SimRegisteredJob::Connect(int64_t attempt, HostId host, int port) {
  link_ = search_->make_link(nullptr, host, port);
  // A leader that is stopped does not answer the join, and loses its lead meanwhile.
  link_->Find(2 * parts_.job->settings->rules.lease, /*once=*/true,
              [this, attempt, host, port](const absl::Status& status) {
                if (!Current(attempt)) return;
                if (!status.ok()) {
                  return After(kPause, [this, attempt, host, port] {
                    if (Current(attempt)) Probe(attempt, host, port);
                  });
                }
                found_ = Where{host, port + SimCoordinator::kGonePortOffset};
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
}

}  // namespace ddprun::sim
