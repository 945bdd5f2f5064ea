// The metrics file: one JSON object a line, one line a step, only ever appended to. A run that was restarted
// has its lines one after the other, steps that were done again twice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::train {

struct StepMetrics {
  int64_t step = 0;         // updates done, this one included
  double loss = 0;          // nats a byte, of this step's batch before its update
  double time = 0;          // of day, in seconds since 1970
  int world_size = 1;       // workers of the round
  int restart = 0;          // failures spent by the job so far
  int64_t round = 0;        // of the launcher; another one also without a failure, when nodes come and go
  double tokens_per_s = 0;  // bytes learnt by all workers together, over this step

  bool operator==(const StepMetrics&) const = default;
};

// Without line end. Numbers keep all their bits.
std::string ToJson(const StepMetrics& metrics);

// Nothing: not a line of metrics (a writer was killed in the middle of it).
absl::StatusOr<StepMetrics> FromJson(absl::string_view line);

// Every whole line of a metrics file, in its order; what is no line of metrics is passed over.
//   Errors: as the system says, naming the file.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// Appends; each line reaches the system as one write before Append returns. What is left of a line that could
// not be written whole, by this writer or by one that was killed, stays a line of its own.
//   Errors: as the system says, naming the file; a later line may do.
class MetricsWriter {
 public:
  // Makes the file where it is missing.
  static absl::StatusOr<MetricsWriter> Open(const std::string& path);
  MetricsWriter(MetricsWriter&& other) noexcept;
  MetricsWriter& operator=(MetricsWriter&& other) = delete;
  ~MetricsWriter();

  absl::Status Append(const StepMetrics& metrics);

 private:
  MetricsWriter(std::string path, int fd, bool torn);

  const std::string path_;
  int fd_;
  bool torn_;  // the file ends in the middle of a line
};

}  // namespace ddprun::train
