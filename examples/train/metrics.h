// The metrics file: one JSON object per line, one line per step, append-only. A restarted job appends to the
// same file, so repeated steps occur more than once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"

namespace ddprun::train {

struct StepMetrics {
  int64_t step = 0;    // updates done, including this one
  double loss = 0;     // nats per byte, on this step's batch before its update
  double time = 0;     // wall clock, seconds since 1970
  int world_size = 1;  // workers of the round
  int restart = 0;     // restarts of the job so far
  int64_t round = 0;   // the launcher's round; also changes without a restart, when nodes join or leave
  // Bytes per second during this step, over all workers; 0: the round ended in it, and --in-place has completed it.
  double tokens_per_s = 0;

  bool operator==(const StepMetrics&) const = default;
};

// Returns the line without a newline. `time` is rounded to milliseconds; `loss` and `tokens_per_s` keep full
// precision.
std::string ToJson(const StepMetrics& metrics);

//   Errors: kInvalidArgument: `line` is not a complete line of metrics, for example because its writer was
//           killed.
StatusOr<StepMetrics> FromJson(std::string_view line);

// Returns all complete lines of a metrics file, in file order; skips other lines.
//   Errors: those of the system, naming the file.
StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// Writes each line with one write() before Append returns. If this writer or an earlier one has left an
// incomplete line, that line is terminated before the next line is written.
//   Errors: those of the system, naming the file; a later Append may succeed.
class MetricsWriter {
 public:
  // Creates the file if it does not exist.
  static StatusOr<MetricsWriter> Open(const std::string& path);
  MetricsWriter(MetricsWriter&& other) noexcept;
  MetricsWriter& operator=(MetricsWriter&& other) = delete;
  ~MetricsWriter();

  Status Append(const StepMetrics& metrics);

 private:
  MetricsWriter(std::string path, int fd, bool torn);

  const std::string path_;
  int fd_;
  bool torn_;  // the file ends with an incomplete line
};

}  // namespace ddprun::train
