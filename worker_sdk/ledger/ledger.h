// Accounts for a job's time. There is one entry for each process that led a round; a balance sums up all
// entries.
//
//   process of round 1        gap       process of round 2
//   [rendezvous|steps|snap|steps]......[rendezvous|steps...]
//                                ^ restart: a restart was charged for a failure
//                                  waiting: no restart was charged; nodes joined or left, or too few nodes
//                                           were present
//                                  down:    the job had ended and was started again
//
// Within a process, time is measured by a monotonic clock. A gap between processes is the difference between
// two wall clock readings, possibly on different hosts, so it includes clock changes and offsets.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/time.h"

namespace ddprun {

// What a process spends its time on.
enum class Activity {
  kRendezvous,  // from its start to its first step: connecting the ranks, reading data and snapshot
  kSteps,
  kSnapshots,
  kOther,  // logs, metrics
};
inline constexpr size_t kNumActivities = 4;

constexpr int64_t kNoStep = -1;

struct LedgerEntry {
  int64_t job = 0;  // hash of the job's name
  int64_t round = 0;
  int64_t restart_count = 0;
  int64_t world_size = 1;
  int64_t begin_us = 0;                               // wall clock when the process began, since 1970
  std::array<int64_t, kNumActivities> spent_us = {};  // by Activity
  int64_t first_step = kNoStep;  // updates done before its first one; kNoStep: no step began
  int64_t last_step = kNoStep;   // updates done when the entry was last written

  int64_t& spent(Activity activity) { return spent_us[static_cast<size_t>(activity)]; }
  [[nodiscard]] int64_t spent(Activity activity) const { return spent_us[static_cast<size_t>(activity)]; }
  bool operator==(const LedgerEntry&) const = default;
};

struct Balance {
  int64_t processes = 0;
  int64_t steps = 0;        // not counting lost steps
  int64_t lost_steps = 0;   // steps that a later process repeated
  int64_t restarts = 0;     // number of gaps of kind `restart`
  int64_t waits = 0;        // number of gaps of kind `waiting`
  int64_t downs = 0;        // number of gaps of kind `down`
  int64_t clock_steps = 0;  // number of negative gaps, counted as zero: a clock was set back

  Duration in_steps{};  // not counting lost steps
  // Each process contributes its time in steps times the fraction of its steps that were lost.
  Duration in_lost_steps{};
  Duration in_rendezvous{};
  Duration in_restart{};
  Duration in_waiting{};
  Duration in_snapshots{};
  Duration in_other{};
  Duration down{};  // not part of total(): the job did not run

  [[nodiscard]] Duration total() const {
    return in_steps + in_lost_steps + in_rendezvous + in_restart + in_waiting + in_snapshots + in_other;
  }
  // The fraction of total() that was spent in steps that were not lost; from 0 to 1.
  [[nodiscard]] double goodput() const;
};

// REQUIRES: `entries` are in the order in which the processes began.
Balance BalanceOf(absl::Span<const LedgerEntry> entries);

// A table for people; each line ends with a newline.
std::string LedgerTable(const Balance& balance);
// One line for programs, without a newline: "event=ledger steps=600 lost_steps=20 ... goodput=0.9312".
std::string LedgerLine(const Balance& balance);

}  // namespace ddprun
