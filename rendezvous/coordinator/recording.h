// Records a coordinator's inputs, with their times, for replay.
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

// Returns a digest of `bytes`. The caller may pass the digest to StepRecorder::Outcome in place of large
// content.
std::string DigestOf(absl::string_view bytes);

using StepSink = std::function<void(const proto::RecordedStep&)>;

// Records the steps of a coordinator.
//   Order: for each step, the caller fills in event(), calls Outcome for each effect, and calls End. End
//          passes the step to the sink and begins the next step.
class StepRecorder {
 public:
  // registered: as CoordinatorLimits::registered.
  StepRecorder(StepSink sink, bool registered) : sink_(std::move(sink)) { step_.set_registered(registered); }

  proto::RecordedStep& event() { return step_; }
  void Outcome(absl::string_view kind, uint64_t peer, absl::string_view content);
  void End(TimePoint now);

 private:
  const StepSink sink_;
  proto::RecordedStep step_;
  boost::crc_32_type crc_;
  std::optional<TimePoint> first_;
};

// The maximum size of a recording. When a recording is full, later steps are dropped rather than earlier
// ones, because a replay must start at the first step.
inline constexpr int64_t kMaxRecordingBytes = int64_t{256} << 20;

// Writes the header of a recording, and returns a sink that writes steps in the file format. All bytes are
// passed to `write` in order. `full` is called once, for the first step that would make the recording larger
// than `max_bytes`. That step and all later steps are dropped.
StepSink EncodeRecording(std::function<void(std::string bytes)> write, std::function<void()> full,
                         int64_t max_bytes = kMaxRecordingBytes);

}  // namespace ddprun
