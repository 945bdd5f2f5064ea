// Records which samples each step uses, to verify that no sample is left out or used twice. There is one JSON
// object per line, one line per step and rank, and one file per round and rank.
//
// A line is written before its step is executed, so a failed step also has lines. If a step was executed in
// several rounds, only its execution in the highest round counts, because that round resumed from a snapshot
// before the step. Use a new directory for each start of a job, because rounds start at 0 again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"

namespace ddprun::train {

// A rank's part of a step. The first sample is at `position` in the shuffled order of `epoch`, and the other
// samples follow in that order. After the last position of the epoch, they continue in the next epoch.
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

// Returns the line without a newline.
std::string ToJson(const SampleUse& use);
//   Errors: kInvalidArgument: `line` is not a complete line of this log.
StatusOr<SampleUse> SampleUseFromJson(std::string_view line);

// Returns all complete lines of all files in `directory`, in unspecified order; skips incomplete lines.
StatusOr<std::vector<SampleUse>> ReadSampleLogs(const std::string& directory);

// Writes each line with one write().
//   Errors: those of the system, naming the file.
class SampleLog {
 public:
  // Creates the directory and a file such as "samples-r2-rank0.jsonl" if they do not exist.
  static StatusOr<SampleLog> Open(const std::string& directory, int64_t round, int rank);
  SampleLog(SampleLog&& other) noexcept;
  SampleLog& operator=(SampleLog&&) = delete;
  ~SampleLog();

  Status Append(const SampleUse& use);

 private:
  SampleLog(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  int fd_;
};

}  // namespace ddprun::train
