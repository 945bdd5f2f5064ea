// The metrics file: one JSON object per line, one line per step, append-only. A restarted job appends to the
// same file, so repeated steps occur more than once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::train {

struct StepMetrics {
  int64_t step = 0;         // updates done, including this one
  double loss = 0;          // nats per byte, on this step's batch before its update
  double time = 0;          // wall clock, seconds since 1970
  int world_size = 1;       // workers of the round
  int restart = 0;          // failures charged to the job so far
  int64_t round = 0;        // the launcher's round; changes even without a failure, when nodes join or leave
  double tokens_per_s = 0;  // bytes processed by all workers, during this step

  bool operator==(const StepMetrics&) const = default;
};

// Without a newline. Floating-point numbers keep full precision.
std::string ToJson(const StepMetrics& metrics);

//   Errors: kInvalidArgument: not a complete line of metrics, for example because its writer was killed.
absl::StatusOr<StepMetrics> FromJson(absl::string_view line);

// All complete lines of a metrics file, in file order; other lines are skipped.
//   Errors: those of the system, naming the file.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// Appends lines, each with one write() before Append returns. An incomplete line, left by this writer or by
// one that was killed, is terminated before the next line.
//   Errors: those of the system, naming the file; a later Append may succeed.
class MetricsWriter {
 public:
  // Creates the file if it does not exist.
  static absl::StatusOr<MetricsWriter> Open(const std::string& path);
  MetricsWriter(MetricsWriter&& other) noexcept;
  MetricsWriter& operator=(MetricsWriter&& other) = delete;
  ~MetricsWriter();

  absl::Status Append(const StepMetrics& metrics);

 private:
  MetricsWriter(std::string path, int fd, bool torn);

  const std::string path_;
  int fd_;
  bool torn_;  // the file ends with an incomplete line
};

}  // namespace ddprun::train
