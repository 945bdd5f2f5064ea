#include "rendezvous/voters/acceptor.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun {

absl::StatusOr<VoteReply> Acceptor::Vote(const VoteRequest& request) {
  if (!request.voter.empty() && request.voter != id_) {
    return absl::NotFoundError(absl::StrCat("voter ", request.voter, " has exited; this is ", id_));
  }
  if (request.kind == VoteRequest::Kind::kAccept) return Accept(request);
  VoteReply reply{.voter = id_};
  if (request.kind == VoteRequest::Kind::kPrepare && request.ballot >= promised_) {
    promised_ = request.ballot;
    reply.granted = true;
  }
  reply.promised = promised_;
  reply.accepted = accepted_;
  reply.record = record_;
  if (record_ && request.has_charter.counter > 0 && record_->charter_written == request.has_charter) {
    reply.record->record.charter.clear();
    reply.charter_omitted = true;
  }
  return reply;
}

VoteReply Acceptor::Accept(const VoteRequest& request) {
  VoteReply reply{.voter = id_};
  if (request.ballot == accepted_) {
    reply.granted = true;  // the answer to the first request was lost
  } else if (request.ballot >= promised_) {
    const bool has_charter = record_ && record_->charter_written == request.record->charter_written;
    if (request.charter_omitted && !has_charter) {
      reply.needs_charter = true;
    } else {
      std::string charter =
          request.charter_omitted ? record_->record.charter : request.record->record.charter;
      record_ = request.record;
      record_->record.charter = std::move(charter);
      accepted_ = request.ballot;
      promised_ = request.next;
      reply.granted = true;
    }
  }
  reply.promised = promised_;
  reply.accepted = accepted_;
  return reply;
}

}  // namespace ddprun
