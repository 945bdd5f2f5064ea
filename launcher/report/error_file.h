// Reads the JSON error file that a failing Python worker writes to TORCHELASTIC_ERROR_FILE, and writes the
// launcher's own error file. An error file has one of two shapes:
//   {"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback ...", "timestamp":
//   "17"}}}
//   {"message": "x", "timestamp": 17}
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct WorkerError {
  std::string text;       // for display: the traceback if there is one, else the message, else "<N/A>"
  int64_t timestamp = 0;  // as the worker wrote it: this host's wall clock, in seconds
  std::string json;       // the contents of the file
  bool plain = false;     // `json` has the second shape, whose text torchrun shows unindented
  bool operator==(const WorkerError&) const = default;
};

// Returns nullopt if `json` does not have one of the two shapes, for example because the worker was killed
// while writing it.
std::optional<WorkerError> ParseErrorFile(absl::string_view json);

// Reads the file at `path`. Returns nullopt if it is missing, is not a regular file, is larger than 16 MiB,
// or does not have one of the two shapes.
std::optional<WorkerError> ReadErrorFile(const std::string& path);

// Writes the root cause's error to `path`. A nonzero `exit_code` is added to the first shape as
// message.errorCode. Replaces an existing file atomically, or overwrites it in place if replacing fails
// because it is a mount point or its directory is not writable. Writes into an existing device or FIFO.
//   REQUIRES: `error` was returned by ParseErrorFile or ReadErrorFile.
//   Errors:   kPermissionDenied, kNotFound, ... with the path. A failed replacement leaves the old file
//             unchanged.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error, int exit_code);
// Like the function above, but writes an error of the launcher itself, in the first shape.
absl::Status WriteErrorFile(const std::string& path, const std::string& text, int64_t timestamp);

// Returns the first `max_bytes` or fewer of the regular file at `path`; empty if the file cannot be read.
std::string HeadOfFile(const std::string& path, size_t max_bytes);

}  // namespace ddprun
