// Errors as values. No function of this library throws; functions that can fail return Status or StatusOr.
//
//   ddprun::StatusOr<Table> Load(const std::string& path);
//
//   ddprun::Status Convert(const std::string& path) {
//     DDPRUN_ASSIGN_OR_RETURN(const Table table, Load(path), "loading the table");
//     DDPRUN_RETURN_IF_ERROR(Check(table), path);
//     return ddprun::OkStatus();
//   }
#pragma once
#pragma GCC system_header  // so that -Wpedantic accepts the optional arguments of the macros below, in C++17

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ddprun/export.h"

#if !defined(_GLIBCXX_USE_CXX11_ABI) || !_GLIBCXX_USE_CXX11_ABI
#error "libddprun needs libstdc++ with its C++11 string: compile with GCC's default, _GLIBCXX_USE_CXX11_ABI=1"
#endif

namespace ddprun {

// The kind of an error. Numbers and meanings are those of gRPC's status codes.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,   // an argument is wrong, whatever the state of the system
  kDeadlineExceeded = 4,  // a time limit passed
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,   // memory, disk or descriptors are used up
  kFailedPrecondition = 9,  // the caller must change the system's state before a retry
  kAborted = 10,            // the round was ended by this or another rank
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  // a peer, a node or the store is lost
  kDataLoss = 15,     // data is damaged
};

// The name of `code`, such as "UNAVAILABLE".
DDPRUN_EXPORT const char* NameOf(StatusCode code);

// OK, or an error with a code and a message for people.
//   Threads: like std::string: any number of threads may read the same object.
class [[nodiscard]] DDPRUN_EXPORT Status {
 public:
  Status() = default;  // OK
  // If `code` is kOk, the message is ignored.
  Status(StatusCode code, std::string_view message);

  [[nodiscard]] bool ok() const { return error_ == nullptr; }
  [[nodiscard]] StatusCode code() const { return ok() ? StatusCode::kOk : error_->code; }
  // Empty if OK. The reference is valid during the lifetime of this object.
  [[nodiscard]] const std::string& message() const;
  // "OK", or "UNAVAILABLE: rank 3 of round 7 is gone".
  [[nodiscard]] std::string ToString() const;

  // Becomes `other` if this is OK: of several errors, the first is kept.
  void Update(Status other) {
    if (ok()) *this = std::move(other);
  }

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }
  friend bool operator!=(const Status& a, const Status& b) { return !(a == b); }

 private:
  struct Error {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;  // null: OK
};

DDPRUN_EXPORT std::ostream& operator<<(std::ostream& out, const Status& status);

inline Status OkStatus() { return {}; }

inline Status CancelledError(std::string_view message) { return {StatusCode::kCancelled, message}; }
inline Status UnknownError(std::string_view message) { return {StatusCode::kUnknown, message}; }
inline Status InvalidArgumentError(std::string_view message) {
  return {StatusCode::kInvalidArgument, message};
}
inline Status DeadlineExceededError(std::string_view message) {
  return {StatusCode::kDeadlineExceeded, message};
}
inline Status NotFoundError(std::string_view message) { return {StatusCode::kNotFound, message}; }
inline Status AlreadyExistsError(std::string_view message) { return {StatusCode::kAlreadyExists, message}; }
inline Status PermissionDeniedError(std::string_view message) {
  return {StatusCode::kPermissionDenied, message};
}
inline Status ResourceExhaustedError(std::string_view message) {
  return {StatusCode::kResourceExhausted, message};
}
inline Status FailedPreconditionError(std::string_view message) {
  return {StatusCode::kFailedPrecondition, message};
}
inline Status AbortedError(std::string_view message) { return {StatusCode::kAborted, message}; }
inline Status OutOfRangeError(std::string_view message) { return {StatusCode::kOutOfRange, message}; }
inline Status UnimplementedError(std::string_view message) { return {StatusCode::kUnimplemented, message}; }
inline Status InternalError(std::string_view message) { return {StatusCode::kInternal, message}; }
inline Status UnavailableError(std::string_view message) { return {StatusCode::kUnavailable, message}; }
inline Status DataLossError(std::string_view message) { return {StatusCode::kDataLoss, message}; }

inline bool IsInvalidArgument(const Status& s) { return s.code() == StatusCode::kInvalidArgument; }
inline bool IsDeadlineExceeded(const Status& s) { return s.code() == StatusCode::kDeadlineExceeded; }
inline bool IsNotFound(const Status& s) { return s.code() == StatusCode::kNotFound; }
inline bool IsPermissionDenied(const Status& s) { return s.code() == StatusCode::kPermissionDenied; }
inline bool IsResourceExhausted(const Status& s) { return s.code() == StatusCode::kResourceExhausted; }
inline bool IsFailedPrecondition(const Status& s) { return s.code() == StatusCode::kFailedPrecondition; }
inline bool IsAborted(const Status& s) { return s.code() == StatusCode::kAborted; }
inline bool IsUnimplemented(const Status& s) { return s.code() == StatusCode::kUnimplemented; }
inline bool IsInternal(const Status& s) { return s.code() == StatusCode::kInternal; }
inline bool IsUnavailable(const Status& s) { return s.code() == StatusCode::kUnavailable; }
inline bool IsDataLoss(const Status& s) { return s.code() == StatusCode::kDataLoss; }

// The code for `error`, a value of errno.
DDPRUN_EXPORT StatusCode ErrnoToStatusCode(int error);
// The status for `error`, a value of errno: "<what>: <strerror(error)>".
DDPRUN_EXPORT Status ErrnoToStatus(int error, std::string_view what);
// Returns `status` with "<context>: " before its message. Returns it unchanged if it is OK or if `context` is
// empty.
DDPRUN_EXPORT Status WithContext(Status status, std::string_view context);

namespace internal {
[[noreturn]] DDPRUN_EXPORT void DieOfBadStatus(const Status& status);
}  // namespace internal

// A value, or the error that prevented it.
//   REQUIRES: value(), * and -> require ok(). Otherwise they print the error and abort the process.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  // From a value, or from anything that converts to T. Implicit, so that `return value;` works.
  template <typename U = T,
            typename = std::enable_if_t<std::conjunction_v<
                std::negation<std::is_same<std::decay_t<U>, StatusOr>>,
                std::negation<std::is_convertible<U&&, Status>>, std::is_convertible<U&&, T>>>>
  StatusOr(U&& value) : value_(std::in_place, std::forward<U>(value)) {}  // NOLINT: implicit
  // REQUIRES: `status` is an error.
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT: implicit
    if (status_.ok()) status_ = InternalError("a StatusOr was made from an OK status without a value");
  }

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const& { return status_; }
  // Leaves an error behind, so that an object without a value never has an OK status.
  [[nodiscard]] Status status() && { return status_; }

  [[nodiscard]] T& value() & { return Checked(); }
  [[nodiscard]] const T& value() const& { return const_cast<StatusOr*>(this)->Checked(); }
  [[nodiscard]] T&& value() && { return std::move(Checked()); }
  [[nodiscard]] T& operator*() & { return Checked(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(Checked()); }
  template <typename U>
  [[nodiscard]] T value_or(U&& fallback) const& {
    return value_ ? *value_ : static_cast<T>(std::forward<U>(fallback));
  }
  template <typename U>
  [[nodiscard]] T value_or(U&& fallback) && {
    return value_ ? *std::move(value_) : static_cast<T>(std::forward<U>(fallback));
  }
  [[nodiscard]] T* operator->() { return &Checked(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

 private:
  T& Checked() {
    if (!value_) internal::DieOfBadStatus(status_);
    return *value_;
  }

  Status status_;  // OK exactly if there is a value
  std::optional<T> value_;
};

}  // namespace ddprun

// If `expr` is an error, returns it from the current function. An optional second argument is a text that is
// put before the message: DDPRUN_RETURN_IF_ERROR(Load(path), path).
#define DDPRUN_RETURN_IF_ERROR(expr, ...)                                                      \
  do {                                                                                         \
    if (::ddprun::Status ddprun_status = (expr); !ddprun_status.ok())                          \
      return ::ddprun::WithContext(std::move(ddprun_status), ::std::string_view{__VA_ARGS__}); \
  } while (false)

// Evaluates `expr`, a StatusOr. If it is an error, returns the error from the current function, otherwise
// assigns the value to `lhs`, which may be a declaration. The optional third argument is a text for errors.
#define DDPRUN_ASSIGN_OR_RETURN(lhs, expr, ...) \
  DDPRUN_ASSIGN_OR_RETURN_IMPL(DDPRUN_JOIN(ddprun_result_, __LINE__), lhs, expr, __VA_ARGS__)
#define DDPRUN_ASSIGN_OR_RETURN_IMPL(result, lhs, expr, ...)                                     \
  auto result = (expr);                                                                          \
  if (!result.ok())                                                                              \
    return ::ddprun::WithContext(::std::move(result).status(), ::std::string_view{__VA_ARGS__}); \
  lhs = *::std::move(result)
#define DDPRUN_JOIN(a, b) DDPRUN_JOIN_IMPL(a, b)
#define DDPRUN_JOIN_IMPL(a, b) a##b
