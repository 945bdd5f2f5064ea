// Records the inputs of a coordinator with their times, for a replay.
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

// A short name of `bytes`, for Outcome.
std::string DigestOf(absl::string_view bytes);

using StepSink = std::function<void(const proto::RecordedStep&)>;

// The steps of one coordinator, one after the other.
//   Order: event() is filled in; Outcome as things come of it; then End, which gives the step to the sink.
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

// Longer recordings end there: their beginning is what a replay needs.
inline constexpr int64_t kMaxRecordingBytes = int64_t{256} << 20;

// A sink that encodes the steps as the file has them, header first. `write` gets all bytes in order; `full` is called
// once when a step would not fit into max_bytes: nothing is written from then on.
StepSink EncodeRecording(std::function<void(std::string bytes)> write, std::function<void()> full,
                         int64_t max_bytes = kMaxRecordingBytes);

}  // namespace ddprun
