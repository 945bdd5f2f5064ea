// Which samples went into which step, for proofs that none is left out or used twice: one JSON object a line,
// one line a step and rank, one file a round and rank.
//
// A line is written before its step is taken, so a step that failed has lines, too. What counts of a step
// that was done several times is its last execution, that of the highest round: the later round went
// on from a snapshot before the step. (So one directory is for one start of a job: the next one's rounds
// begin with 0 again.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::train {

// A rank's part of a step. Its first sample is at `position` of `epoch`, in the order in which the epoch is
// shuffled; the others follow, beyond the last one in the epoch after.
struct SampleUse {
  int64_t round = 0;
  int64_t step = 0;  // the number that the update will have, from 1
  int rank = 0;
  int world_size = 1;
  int64_t epoch = 0;
  int64_t position = 0;
  std::vector<int64_t> samples{};  // numbers of samples of the text

  bool operator==(const SampleUse&) const = default;
};

// Without line end.
std::string ToJson(const SampleUse& use);
// Nothing: not a line of this log.
absl::StatusOr<SampleUse> SampleUseFromJson(absl::string_view line);

// All lines of all files in `directory`, in no particular order. A line that its writer was killed in is
// passed over.
absl::StatusOr<std::vector<SampleUse>> ReadSampleLogs(const std::string& directory);

// Appends; each line reaches the system as one write.
//   Errors: as the system says, naming the file.
class SampleLog {
 public:
  // Makes directory and file where they are missing: "samples-r2-rank0.jsonl".
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
