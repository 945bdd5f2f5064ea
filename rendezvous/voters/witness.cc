#include "rendezvous/voters/witness.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "proto/utf8.h"
#include "rendezvous/charter/lead.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {

absl::StatusOr<proto::VoteReply> Witness::Answer(const proto::VoteRequest& request, TimePoint now) {
  ASSIGN_OR_RETURN(const VoteRequest vote, DecodeVoteRequest(request));
  if (vote.wants_voters) RETURN_IF_ERROR(Found(request.run_id(), now));
  Job& job = Find(request.run_id(), now);
  job.asked = now;
  if (vote.voters) job.heard = now;  // the leader announces itself
  ASSIGN_OR_RETURN(VoteReply reply, job.acceptor.Vote(vote));
  reply.witness = true;
  if (vote.kind == VoteRequest::Kind::kAccept && reply.granted) {
    TakeNote(job, vote.record->record, now);
    // The charter may be that of an earlier request.
    job.bytes = std::max(job.bytes, request.ByteSizeLong());
    while (Bytes() > kMaxBytes) ForgetOldest();
  }
  return EncodeVoteReply(reply);
}

absl::Status Witness::Found(const std::string& run_id, TimePoint now) {
  const Job& job = Find(run_id, now);
  if (HasLeader(job, now)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", Utf8Head(run_id, 100), " had a coordinator ", InSeconds(now - job.heard),
                     " ago. A new start of the job waits until that one has been silent for ",
                     InSeconds(kSilence * job.lease)));
  }
  // What the agents of an earlier start have written counts no longer, because they have exited.
  if (job.heard != TimePoint()) jobs_.erase(run_id);
  return absl::OkStatus();
}

void Witness::TakeNote(Job& job, const RegisterRecord& record, TimePoint now) {
  job.heard = now;
  job.leader.clear();
  const absl::StatusOr<Lead> lead = DecodeLead(record.lead);
  job.is_over = !record.exists || (lead.ok() && lead->state == Lead::State::kClosed);
  if (!lead.ok()) return;
  if (lead->lease > Duration::zero()) job.lease = lead->lease;
  if (lead->state == Lead::State::kLeads) job.leader = lead->address;
}

bool Witness::HasLeader(const Job& job, TimePoint now) {
  return job.heard != TimePoint() && !job.is_over && now - job.heard < kSilence * job.lease;
}

std::string Witness::Leader(const std::string& run_id, TimePoint now) const {
  const auto job = jobs_.find(run_id);
  return job == jobs_.end() || !HasLeader(job->second, now) ? "" : job->second.leader;
}

Witness::Job& Witness::Find(const std::string& run_id, TimePoint now) {
  const auto found = jobs_.find(run_id);
  if (found != jobs_.end()) return found->second;
  std::erase_if(jobs_, [&](const auto& job) { return now - job.second.asked >= kIdle; });
  while (jobs_.size() >= kMaxJobs || (!jobs_.empty() && Bytes() + run_id.size() > kMaxBytes)) ForgetOldest();
  return jobs_.emplace(run_id, Job{.acceptor = Acceptor(new_id_()), .asked = now}).first->second;
}

size_t Witness::Bytes() const {
  size_t bytes = 0;
  for (const auto& [run_id, job] : jobs_) bytes += run_id.size() + job.bytes;
  return bytes;
}

void Witness::ForgetOldest() {
  jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(),
                               [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; }));
}

}  // namespace ddprun
