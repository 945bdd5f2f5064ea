// Reads the JSON error file that a failing Python worker writes to TORCHELASTIC_ERROR_FILE, and writes the
// launcher's own error file. An error file has one of two shapes:
//   {"message": {"message": "RuntimeError: x",
//                "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "17"}}}
//   {"message": "x", "timestamp": 17}
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct WorkerError {
  std::string text;       // text to display: the traceback if there is one, else the message, else "<N/A>"
  int64_t timestamp = 0;  // time of the error in seconds since 1970, from the worker; 0 if missing
  std::string json;       // the contents of the file
  bool plain = false;     // true if `json` has the second shape, whose text torchrun shows unindented
  bool operator==(const WorkerError&) const = default;
};

// Returns nullopt if `json` does not have one of the two shapes, for example because the worker was killed
// while writing it.
std::optional<WorkerError> ParseErrorFile(absl::string_view json);

// Reads the file at `path`. Returns nullopt if it is missing, is not a regular file, is larger than 16 MiB,
// or does not have one of the two shapes.
std::optional<WorkerError> ReadErrorFile(const std::string& path);

// Writes the root cause's error to `path`. If the error has the first shape and `exit_code` is not 0, adds
// `exit_code` as message.errorCode. Replaces an existing file atomically. If the file cannot be replaced
// because it is a mount point or its directory is not writable, overwrites the file in place. An existing
// device or FIFO is not replaced; the error is written to it.
//   REQUIRES: `error` was returned by ParseErrorFile or ReadErrorFile.
//   Errors:   kPermissionDenied, kNotFound, ... with the path. If a replacement fails, the old file is
//             unchanged.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error, int exit_code);
// Like the function above, but writes an error of the launcher itself in the first shape. `timestamp` is in
// seconds since 1970.
absl::Status WriteErrorFile(const std::string& path, const std::string& text, int64_t timestamp);

// Returns at most the first `max_bytes` bytes of the regular file at `path`; empty if it cannot be read.
std::string HeadOfFile(const std::string& path, size_t max_bytes);

}  // namespace ddprun
