// Records the inputs of a coordinator with their times for replay.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/crc.hpp"
#include "proto/recording.pb.h"

namespace ddprun {

// A digest of `bytes`, for Outcome.
std::string DigestOf(absl::string_view bytes);

using StepSink = std::function<void(const proto::RecordedStep&)>;

// Records the steps of a coordinator.
//   Order: for each step, fill in event(), call Outcome for each effect, then End, which emits the step.
class StepRecorder {
 public:
  explicit StepRecorder(StepSink sink) : sink_(std::move(sink)) {}

  proto::RecordedStep& event() { return step_; }
  void Outcome(absl::string_view kind, uint64_t peer, absl::string_view content);
  void End(TimePoint now);

 private:
  const StepSink sink_;
  proto::RecordedStep step_;
  boost::crc_32_type crc_;
  std::optional<TimePoint> first_;
};

// Recordings are truncated at this size; a replay needs their beginning.
inline constexpr int64_t kMaxRecordingBytes = int64_t{256} << 20;

// A sink that encodes steps in the file format, header first. `write` receives all bytes in order. `full` is
// called once, when a step would exceed max_bytes; nothing is written afterwards.
StepSink EncodeRecording(std::function<void(std::string bytes)> write, std::function<void()> full,
                         int64_t max_bytes = kMaxRecordingBytes);

}  // namespace ddprun
