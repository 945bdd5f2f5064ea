// RETURN_IF_ERROR(expr, "context") and ASSIGN_OR_RETURN(lhs, expr, "context"): if `expr` is an error, return
// it from the current function with "context: " prepended to its message. The context is optional.
//
// In Debian's build of Abseil, absl::string_view and std::string_view are different types, so this project
// uses absl::string_view everywhere.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Returns `status` with "context: " prepended to its message. Returns `status` unchanged if it is OK or if
// `context` is empty.
inline absl::Status WithContext(absl::Status status, absl::string_view context) {
  if (status.ok() || context.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace ddprun

#define DDPRUN_CONCAT_INNER(a, b) a##b
#define DDPRUN_CONCAT(a, b) DDPRUN_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr, ...)                                                            \
  do {                                                                                        \
    if (absl::Status ddprun_status = (expr); !ddprun_status.ok())                             \
      return ::ddprun::WithContext(std::move(ddprun_status), absl::string_view{__VA_ARGS__}); \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr, ...) \
  ASSIGN_OR_RETURN_IMPL(DDPRUN_CONCAT(ddprun_result_, __LINE__), lhs, expr, __VA_ARGS__)
#define ASSIGN_OR_RETURN_IMPL(result, lhs, expr, ...)                                         \
  auto result = (expr);                                                                       \
  if (!result.ok())                                                                           \
    return ::ddprun::WithContext(std::move(result).status(), absl::string_view{__VA_ARGS__}); \
  lhs = *std::move(result)
