// The JSON file that a failing Python worker writes to TORCHELASTIC_ERROR_FILE, and the copy of the root
// cause's file that the launcher writes to its own TORCHELASTIC_ERROR_FILE. It has one of two shapes:
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
  std::string text;       // for display: the traceback, else the message, else "<N/A>"
  int64_t timestamp = 0;  // seconds of this host's wall clock, as the worker wrote them
  std::string json;       // the contents of the file
  bool plain = false;     // second shape, whose text torchrun shows unindented
  bool operator==(const WorkerError&) const = default;
};

// Returns nullopt if `json` is not JSON of one of the two shapes, for example truncated by a kill.
std::optional<WorkerError> ParseErrorFile(absl::string_view json);

// Reads the file at `path`. Returns nullopt if it is missing, not a regular file, larger than 16 MiB, or not
// of one of the two shapes.
std::optional<WorkerError> ReadErrorFile(const std::string& path);

// Writes the root cause's error to `path`. A nonzero `exit_code` is added to the first shape as
// message.errorCode. An existing file is replaced atomically, or overwritten in place if that is impossible
// (it is a mount point, or its directory is not writable). An existing device or FIFO is written to.
//   REQUIRES: `error` was returned by ParseErrorFile or ReadErrorFile.
//   Errors:   kPermissionDenied, kNotFound, ... with the path. A failed replacement keeps the older file.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error, int exit_code);
// As above, for an error of the launcher itself, in the first shape.
absl::Status WriteErrorFile(const std::string& path, const std::string& text, int64_t timestamp);

// Returns at most the first `max_bytes` of the regular file at `path`; empty if it cannot be read.
std::string HeadOfFile(const std::string& path, size_t max_bytes);

}  // namespace ddprun
