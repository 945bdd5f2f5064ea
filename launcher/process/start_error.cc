#include "launcher/process/start_error.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using warden_protocol::StartStage;

std::string ErrorText(int error) {
  switch (error) {
    case EAGAIN:
      return "too many processes: see ulimit -u, or the pids limit of the container";
    case EMFILE:
    case ENFILE:
      return "too many open files: see ulimit -n";
    case E2BIG:
      return "arguments and environment are larger than the system takes";
    default:
      return std::strerror(error);
  }
}

absl::StatusCode Code(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case ENOEXEC:
    case E2BIG:
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case ECANCELED:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string ExecText(int error, const std::string& program, absl::string_view cwd) {
  const std::string path =
      absl::StartsWith(program, "/") || cwd.empty() ? program : absl::StrCat(cwd, "/", program);
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (error == ENOENT && exists) {
    return "the file is there, but the interpreter it asks for is not: check its #! line (or its loader)";
  }
  if (error == ENOENT) return "no such file";
  if (error == EACCES && exists && S_ISDIR(info.st_mode)) return "this is a directory, not a program";
  if (error == EACCES && exists && access(path.c_str(), X_OK) != 0) {
    return absl::StrCat("permission denied: is it executable? (chmod +x ", path, ")");
  }
  if (error == EACCES) return "permission denied: a directory on the way, its interpreter, or a noexec mount";
  if (error == ENOEXEC) {
    return "exec format error: neither a program for this machine nor a script that begins with #!";
  }
  if (error == ETXTBSY) return "text file busy: somebody is writing to it";
  return ErrorText(error);
}

}  // namespace

absl::Status StartError(StartStage stage, int error, absl::string_view program, absl::string_view cwd) {
  const auto make = [&](const auto&... text) {
    return absl::Status(Code(error), absl::StrCat("cannot start ", program, ": ", text...));
  };
  switch (stage) {
    case StartStage::kReceive:
      return make("its descriptors could not be passed: ", ErrorText(error));
    case StartStage::kFork:
      if (error == ECANCELED) return make("all workers are being killed, or this node has lost its lease");
      return make("fork: ", ErrorText(error));
    case StartStage::kAffinity:
      return make("none of the processors asked for may be used: see taskset -p ", getpid());
    case StartStage::kDirectory:
      return make("working directory ", cwd, ": ", ErrorText(error));
    case StartStage::kExec:
      return make(ExecText(error, std::string(program), cwd));
  }
  return make(ErrorText(error));
}

}  // namespace ddprun
