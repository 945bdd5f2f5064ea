#include "examples/train/progress.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"

namespace ddprun::train {
namespace {

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Avoids a division by zero if the clock has not advanced.
double PerSecond(int64_t count, Duration duration) {
  return static_cast<double>(count) / std::max(1e-9, Seconds(duration));
}

}  // namespace

Progress::Progress(int64_t first_step, int64_t last_step, int64_t tokens_per_step, TimePoint now)
    : first_step_(first_step),
      last_step_(last_step),
      tokens_per_step_(tokens_per_step),
      begin_(now),
      step_(first_step),
      step_begin_(now),
      line_step_(first_step),
      line_time_(now) {}

void Progress::StepDone(TimePoint now) {
  ++step_;
  step_time_ = now - step_begin_;
  step_begin_ = now;
}

double Progress::StepTokensPerSecond() const { return PerSecond(tokens_per_step_, step_time_); }

std::string Progress::Line(double loss, TimePoint now) {
  const double speed = PerSecond((step_ - line_step_) * tokens_per_step_, now - line_time_);
  const int64_t done = std::max<int64_t>(1, step_ - first_step_);
  const Duration left = (now - begin_) / done * (last_step_ - step_);
  line_step_ = step_;
  line_time_ = now;
  return absl::StrFormat("step=%d/%d loss=%.4f tokens/s=%.0f left=%s", step_, last_step_, loss, speed,
                         ForPeople(left));
}

std::string ForPeople(Duration duration) {
  const int64_t s = std::chrono::round<seconds>(duration).count();
  if (s < 60) return absl::StrFormat("%ds", s);
  if (s < 3600) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  if (s < 86400) return absl::StrFormat("%dh%02dm", s / 3600, s / 60 % 60);
  return absl::StrFormat("%dd%02dh", s / 86400, s / 3600 % 24);
}

}  // namespace ddprun::train
