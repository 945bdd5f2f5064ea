#include "worker_sdk/snapshot/claim.h"

#include <sys/random.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

// Returns a string that is unique to each claim. Host name and PID are not unique in containers.
absl::StatusOr<std::string> Nonce() {
  uint64_t bits[2];
  if (getrandom(bits, sizeof(bits), 0) != sizeof(bits)) return absl::ErrnoToStatus(errno, "getrandom");
  return absl::StrFormat("%016x%016x", bits[0], bits[1]);
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

// Returns the file's bytes; empty if there is no file.
absl::StatusOr<std::string> ReadClaim(const std::string& directory) {
  absl::StatusOr<std::string> bytes = ReadFile(absl::StrCat(directory, "/", DirectoryClaim::kFile));
  if (absl::IsNotFound(bytes.status())) return std::string();
  return bytes;
}

}  // namespace

absl::Status DirectoryClaim::Look() {
  ASSIGN_OR_RETURN(seen_, ReadClaim(directory_));
  return absl::OkStatus();
}

absl::Status DirectoryClaim::Take(absl::string_view run_id, Round round) {
  run_id_ = std::string(run_id);
  round_ = round;
  ASSIGN_OR_RETURN(const std::string nonce, Nonce());
  boost::json::object claim;
  claim["run_id"] = run_id_;
  claim["round"] = round.value();
  claim["host"] = HostName();
  claim["pid"] = getpid();
  claim["nonce"] = nonce;
  const std::string bytes = boost::json::serialize(claim) + "\n";
  const absl::string_view part = bytes;
  const auto still_as_seen = [this]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string now, ReadClaim(directory_));
    return now == seen_ ? absl::OkStatus() : TakenOver(now);
  };
  RETURN_IF_ERROR(ReplaceFile(directory_, std::string(kFile), absl::StrCat(".", kFile, ".", nonce, ".tmp"),
                              {&part, 1}, still_as_seen));
  mine_ = bytes;
  nonce_ = nonce;
  return absl::OkStatus();
}

absl::Status DirectoryClaim::Check() const {
  ASSIGN_OR_RETURN(const std::string now, ReadClaim(directory_));
  return now == mine_ || now.empty() ? absl::OkStatus() : TakenOver(now);
}

absl::Status DirectoryClaim::TakenOver(const std::string& by) const {
  boost::json::error_code bad;
  const boost::json::value value = boost::json::parse(by, bad);
  const auto text = [&](const char* name) -> std::string {
    const boost::json::value* field = value.is_object() ? value.get_object().if_contains(name) : nullptr;
    if (field == nullptr) return "?";
    return field->is_string() ? std::string(field->get_string()) : boost::json::serialize(*field);
  };
  const bool same_job = text("run_id") == run_id_;
  const std::string job = same_job ? "" : absl::StrCat(" of job \"", text("run_id"), "\"");
  return absl::AbortedError(absl::StrCat("round ", text("round"), job, " has taken over ", directory_,
                                         " (process ", text("pid"), " on ", text("host"),
                                         "): this worker belongs to round ", round_.value(),
                                         same_job ? "" : absl::StrCat(" of job \"", run_id_, "\"")));
}

}  // namespace ddprun
