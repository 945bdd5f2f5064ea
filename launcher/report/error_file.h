// The JSON that a failing Python worker leaves at TORCHELASTIC_ERROR_FILE, and the copy of the root cause's
// that the launcher leaves at its own.
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
  std::string text;       // to be shown: the traceback, else the message, else "<N/A>"
  int64_t timestamp = 0;  // whole seconds of this host's wall clock, as the worker wrote them
  std::string json;       // the file
  bool plain = false;     // it is of the second shape, whose text torchrun shows as it stands
  bool operator==(const WorkerError&) const = default;
};

// None for text that is no JSON of one of the two shapes, such as one torn by a kill.
std::optional<WorkerError> ParseErrorFile(absl::string_view json);

// The file at `path`; none where it is missing, larger than 16 MiB, or not as above.
std::optional<WorkerError> ReadErrorFile(const std::string& path);

// Writes the root cause's error to `path`; `exit_code` is added to the first shape as message.errorCode. A
// file there is replaced in one step, or written over where that cannot be: when it is mounted, or its folder
// is closed to us. A device or a FIFO there gets the text.
//   REQUIRES: `error` was parsed as above.
//   Errors: kPermissionDenied, kNotFound, ... with the path; an older file that is replaced stays as it was.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error, int exit_code);
// The same of an error of the launcher itself, in the first shape.
absl::Status WriteErrorFile(const std::string& path, const std::string& text, int64_t timestamp);

// The first `max_bytes` of the file at `path`; empty where there is none, or it cannot be read.
std::string HeadOfFile(const std::string& path, size_t max_bytes);

}  // namespace ddprun
