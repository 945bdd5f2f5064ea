// When a rank sends a note about the operation for which it waits (HostGroupInterface::PostCall). Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"

namespace ddprun {

// The first note about an operation is due 20 ms after it has become the oldest one, and halfway to its deadline at the latest.
// While it does not complete, notes are repeated, with pauses that grow to 1 s: a note may be lost, or arrive before the other
// rank makes the call that differs. If operations complete after a note, they are slow and not different: the time before the
// first note about later ones grows as well, so that such a program soon sends none.
class NoteSchedule {
 public:
  static constexpr Duration kFirstPatience = milliseconds(20);
  static constexpr Duration kMaxPatience = seconds(1);

  // A note about operation `oldest`, which has not completed, is due now: returns the number of notes about it before.
  //   oldest:   never decreases.
  //   deadline: of that operation.
  std::optional<uint32_t> Due(uint64_t oldest, TimePoint deadline, TimePoint now);
  // Likewise, but one is sent in any case.
  uint32_t SendNow(uint64_t oldest, TimePoint now);

 private:
  void Follow(uint64_t oldest, TimePoint now);

  std::optional<uint64_t> oldest_;
  TimePoint since_ = {};                // `oldest_` is the oldest one
  uint32_t num_sent_ = 0;               // about `oldest_`
  TimePoint next_ = {};                 // when the next note is due
  Duration pause_ = {};                 // before the note after that one
  Duration patience_ = kFirstPatience;  // before the first note
};

}  // namespace ddprun
