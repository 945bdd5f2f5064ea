// Records which samples went into which step, to verify that none is left out or used twice: one JSON object
// per line, one line per step and rank, one file per round and rank.
//
// A line is written before its step is executed, so a failed step has lines too. If a step was executed
// several times, only its last execution counts, the one in the highest round: that round resumed from a
// snapshot before the step. Use a new directory for each start of a job, because rounds start at 0 again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::train {

// A rank's part of a step. Its first sample is at `position` in the shuffled order of `epoch`; the others
// follow it, continuing in the next epoch after the last position.
struct SampleUse {
  int64_t round = 0;
  int64_t step = 0;  // number of the update, from 1
  int rank = 0;
  int world_size = 1;
  int64_t epoch = 0;
  int64_t position = 0;
  std::vector<int64_t> samples{};  // indices of samples in the text

  bool operator==(const SampleUse&) const = default;
};

// Without a newline.
std::string ToJson(const SampleUse& use);
//   Errors: kInvalidArgument: not a complete line of this log.
absl::StatusOr<SampleUse> SampleUseFromJson(absl::string_view line);

// All complete lines of all files in `directory`, in unspecified order; incomplete lines are skipped.
absl::StatusOr<std::vector<SampleUse>> ReadSampleLogs(const std::string& directory);

// Appends lines, each with one write().
//   Errors: those of the system, naming the file.
class SampleLog {
 public:
  // Creates directory and file, such as "samples-r2-rank0.jsonl", if they do not exist.
  static absl::StatusOr<SampleLog> Open(const std::string& directory, int64_t round, int rank);
  SampleLog(SampleLog&& other) noexcept;
  SampleLog& operator=(SampleLog&&) = delete;
  ~SampleLog();

  absl::Status Append(const SampleUse& use);

 private:
  SampleLog(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  int fd_;
};

}  // namespace ddprun::train
