#include "ddprun/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ddprun {

const char* NameOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
  }
  return "UNKNOWN";
}

Status::Status(StatusCode code, std::string_view message) {
  if (code == StatusCode::kOk) return;
  error_ = std::make_shared<const Error>(Error{code, std::string(message)});
}

const std::string& Status::message() const {
  static const std::string* const kEmpty =
      new std::string;  // never destroyed: other threads may outlive main
  return ok() ? *kEmpty : error_->message;
}

std::string Status::ToString() const { return ok() ? "OK" : std::string(NameOf(code())) + ": " + message(); }

std::ostream& operator<<(std::ostream& out, const Status& status) { return out << status.ToString(); }

StatusCode ErrnoToStatusCode(int error) {
  switch (error) {
    case 0:
      return StatusCode::kOk;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case EDESTADDRREQ:
    case EDOM:
    case EFAULT:
    case EILSEQ:
    case ENOPROTOOPT:
    case ENOTSOCK:
    case ENOTTY:
    case EPROTOTYPE:
    case ESPIPE:
      return StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case ENODEV:
    case ENOENT:
    case ENXIO:
    case ESRCH:
      return StatusCode::kNotFound;
    case EEXIST:
    case EADDRNOTAVAIL:
    case EALREADY:
      return StatusCode::kAlreadyExists;
    case EPERM:
    case EACCES:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOTEMPTY:
    case EISDIR:
    case ENOTDIR:
    case EADDRINUSE:
    case EBADF:
    case EBUSY:
    case ECHILD:
    case EISCONN:
    case ENOTBLK:
    case ENOTCONN:
    case EPIPE:
    case ETXTBSY:
      return StatusCode::kFailedPrecondition;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case EMLINK:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case EFBIG:
    case EOVERFLOW:
    case ERANGE:
      return StatusCode::kOutOfRange;
    case ENOSYS:
    case ENOTSUP:
    case EAFNOSUPPORT:
    case EPFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
    case EXDEV:
      return StatusCode::kUnimplemented;
    case EAGAIN:
    case ECOMM:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ECONNRESET:
    case EINTR:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENETUNREACH:
    case ENOLCK:
    case ENOLINK:
      return StatusCode::kUnavailable;
    case EDEADLK:
    case ESTALE:
      return StatusCode::kAborted;
    case ECANCELED:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kUnknown;
  }
}

Status ErrnoToStatus(int error, std::string_view what) {
  return {ErrnoToStatusCode(error), std::string(what) + ": " + std::strerror(error)};
}

Status WithContext(Status status, std::string_view context) {
  if (status.ok() || context.empty()) return status;
  return {status.code(), std::string(context) + ": " + status.message()};
}

namespace internal {
void DieOfBadStatus(const Status& status) {
  std::fprintf(stderr, "ddprun: the value of a StatusOr was used, but it is an error: %s\n",
               status.ToString().c_str());
  std::abort();
}
}  // namespace internal

}  // namespace ddprun
