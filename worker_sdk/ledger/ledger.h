// Accounts for a job's time. There is one entry for each process that led a round. A balance is the sum of
// all entries and of the gaps between them.
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
#include <span>
#include <string>

#include "base/time.h"

namespace ddprun {

// What a process spends its time on.
enum class Activity {
  kRendezvous,  // before the first step: connecting the ranks, reading the data and a snapshot
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
  int64_t first_step = kNoStep;  // updates done before this process's first step; kNoStep if no step began
  int64_t last_step = kNoStep;   // updates done when the entry was last written; kNoStep if no step began

  int64_t& spent(Activity activity) { return spent_us[static_cast<size_t>(activity)]; }
  [[nodiscard]] int64_t spent(Activity activity) const { return spent_us[static_cast<size_t>(activity)]; }
  bool operator==(const LedgerEntry&) const = default;
};

struct Balance {
  int64_t processes = 0;
  int64_t steps = 0;        // not counting lost steps
  int64_t lost_steps = 0;   // steps that were repeated by a later process
  int64_t restarts = 0;     // number of gaps of kind `restart`
  int64_t waits = 0;        // number of gaps of kind `waiting`
  int64_t downs = 0;        // number of gaps of kind `down`
  int64_t clock_steps = 0;  // number of negative gaps: a clock was set back; each counts as zero

  Duration in_steps{};  // not counting lost steps
  // Each process adds its time in steps, multiplied by the fraction of its steps that were lost.
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
  // The fraction of total() that was spent in steps that were not lost: 0 to 1, and 0 if total() is 0.
  [[nodiscard]] double goodput() const;
};

// REQUIRES: `entries` are in the order in which the processes began.
Balance BalanceOf(std::span<const LedgerEntry> entries);

// Returns a table for people. Each line ends with a newline.
std::string LedgerTable(const Balance& balance);
// Returns one line for programs, without a newline:
//   event=ledger steps=600 lost_steps=20 ... goodput=0.9312
std::string LedgerLine(const Balance& balance);

}  // namespace ddprun
