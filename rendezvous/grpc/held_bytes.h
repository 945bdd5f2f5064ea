// Memory that somebody holds for others, counted and limited.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace ddprun {

// What all holders hold together, at most `max_bytes`.
//   Threads: safe.
class ByteLimit {
 public:
  explicit ByteLimit(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  //   Errors: kResourceExhausted, naming `what`: that is more than what is left; nothing has changed.
  absl::Status Take(uint64_t bytes, absl::string_view what) {
    absl::MutexLock lock(&mutex_);
    if (bytes <= max_bytes_ - taken_) {
      taken_ += bytes;
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat("calls hold ", taken_, " of ", max_bytes_, " bytes, ",
                                                     what, " needs ", bytes,
                                                     " more: ask again when some are over"));
  }
  void GiveBack(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    taken_ -= bytes;
  }

 private:
  const uint64_t max_bytes_;
  absl::Mutex mutex_;
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What one holder has taken of a limit, which outlives it; given back when it goes.
//   Threads: one caller at a time.
class HeldBytes {
 public:
  explicit HeldBytes(ByteLimit* limit) : limit_(limit) {}
  ~HeldBytes() { limit_->GiveBack(bytes_); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  // Errors as those of ByteLimit::Take.
  absl::Status Add(uint64_t bytes, absl::string_view what) {
    absl::Status status = limit_->Take(bytes, what);
    if (status.ok()) bytes_ += bytes;
    return status;
  }
  uint64_t bytes() const { return bytes_; }
  // REQUIRES: so many have been added.
  void Remove(uint64_t bytes) {
    limit_->GiveBack(bytes);
    bytes_ -= bytes;
  }

 private:
  ByteLimit* const limit_;
  uint64_t bytes_ = 0;
};

}  // namespace ddprun
