#include "worker_sdk/round_store.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {

absl::Status RoundStore::Connect() {
  if (client_ != nullptr) return absl::OkStatus();
  if (port_ == 0) {
    return absl::FailedPreconditionError(
        "there is no worker store: MASTER_PORT is not set (start this program with ddprun)");
  }
  ASSIGN_OR_RETURN(client_, C10dClient::Connect(host_, port_, connect_timeout_),
                   absl::StrCat("worker store ", host_, ":", port_));
  return absl::OkStatus();
}

void RoundStore::NoteEnd(const absl::Status& status) {
  if (absl::IsUnavailable(status)) client_.reset();
}

absl::Status RoundStore::Set(absl::string_view key, absl::string_view value) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Connect());
  absl::Status status = client_->Set(absl::StrCat(prefix_, key), value);
  NoteEnd(status);
  return status;
}

absl::StatusOr<std::string> RoundStore::Get(absl::string_view key, Duration timeout) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(Connect());
  absl::StatusOr<std::string> value = client_->Get(absl::StrCat(prefix_, key), timeout);
  NoteEnd(value.status());
  return value;
}

}  // namespace ddprun
