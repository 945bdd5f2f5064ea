#include "worker_sdk/snapshot/claim.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <string_view>

#include "ddprun/status.h"
#include "worker_sdk/core/json.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

// Returns a string that is unique to each claim. Host name and PID are not unique in containers.
StatusOr<std::string> Nonce() {
  char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return ErrnoToStatus(errno, "getrandom");
  return ToHex({bytes, sizeof bytes});
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

// Returns the bytes of the claim file; empty if there is no file.
StatusOr<std::string> ReadClaim(const std::string& directory) {
  StatusOr<std::string> bytes = ReadFile(StrCat(directory, "/", DirectoryClaim::kFile));
  if (IsNotFound(bytes.status())) return std::string();
  return bytes;
}

}  // namespace

Status DirectoryClaim::Look() {
  DDPRUN_ASSIGN_OR_RETURN(seen_, ReadClaim(directory_));
  return OkStatus();
}

Status DirectoryClaim::Take(std::string_view run_id, Round round) {
  // A retry writes the same bytes: the attempt before may have replaced the file and failed afterwards.
  if (mine_.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(nonce_, Nonce());
    run_id_ = std::string(run_id);
    round_ = round;
    Json claim;
    claim["run_id"] = run_id_;
    claim["round"] = round.value();
    claim["host"] = HostName();
    claim["pid"] = getpid();
    claim["nonce"] = nonce_;
    mine_ = ToText(claim) + "\n";
  }
  const std::string_view part = mine_;
  const auto still_as_seen = [this]() -> Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::string now, ReadClaim(directory_));
    return now == seen_ || now == mine_ ? OkStatus() : TakenOver(now);
  };
  return ReplaceFile(directory_, std::string(kFile), StrCat(".", kFile, ".", nonce_, ".tmp"), {&part, 1},
                     still_as_seen);
}

Status DirectoryClaim::Check() const {
  DDPRUN_ASSIGN_OR_RETURN(const std::string now, ReadClaim(directory_));
  return now == mine_ || now.empty() ? OkStatus() : TakenOver(now);
}

Status DirectoryClaim::TakenOver(const std::string& by) const {
  const Json value = ParseJson(by).value_or(Json());
  const auto text = [&](const char* name) -> std::string {
    const Json* field = FindIn(value, name);
    if (field == nullptr) return "?";
    if (field->is_string()) return field->get<std::string>();
    return field->is_number() ? ToText(*field) : "?";
  };
  const bool same_job = text("run_id") == run_id_;
  const std::string job = same_job ? "" : StrCat(" of job \"", text("run_id"), "\"");
  return AbortedError(StrCat("round ", text("round"), job, " has taken over ", directory_, " (process ",
                             text("pid"), " on ", text("host"), "): this worker belongs to round ",
                             round_.value(), same_job ? "" : StrCat(" of job \"", run_id_, "\"")));
}

}  // namespace ddprun
