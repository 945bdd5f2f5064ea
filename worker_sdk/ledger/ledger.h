// What became of a job's time: entries, one for each process that led a round, and their balance.
//
//   process of round 1        gap       process of round 2
//   [rendezvous|steps|snap|steps]......[rendezvous|steps...]
//                                ^ restart: a failure was charged in between
//                                  waiting: none was, nodes came or went; or waited to be enough
//                                  down:    the job itself had ended and was started again
//
// Within a process time is that of a monotonic clock. Gaps between processes are differences of the clock of
// day of their hosts: a clock that was set, or another host's that is set otherwise, shows up there.
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
  kRendezvous,  // from its start to its first step: meeting the others, reading data and snapshot
  kSteps,
  kSnapshots,
  kOther,  // logs, metrics
};
inline constexpr size_t kNumActivities = 4;

constexpr int64_t kNoStep = -1;

struct LedgerEntry {
  int64_t job = 0;  // equal for processes of one job: a hash of its name
  int64_t round = 0;
  int64_t restart_count = 0;
  int64_t world_size = 1;
  int64_t begin_us = 0;                               // clock of day when the process began, since 1970
  std::array<int64_t, kNumActivities> spent_us = {};  // by Activity
  int64_t first_step = kNoStep;  // updates done before its first one; kNoStep: it did not come to that
  int64_t last_step = kNoStep;   // updates done at its last word

  int64_t& spent(Activity activity) { return spent_us[static_cast<size_t>(activity)]; }
  [[nodiscard]] int64_t spent(Activity activity) const { return spent_us[static_cast<size_t>(activity)]; }
  bool operator==(const LedgerEntry&) const = default;
};

struct Balance {
  int64_t processes = 0;
  int64_t steps = 0;       // that count
  int64_t lost_steps = 0;  // done, and done again by a later process
  int64_t restarts = 0;    // gaps of each kind
  int64_t waits = 0;
  int64_t downs = 0;
  int64_t clock_steps = 0;  // gaps below zero, which count as none: a clock was set back

  Duration in_steps{};  // that count
  // Of a process's steps as many as were lost take their share of its time.
  Duration in_lost_steps{};
  Duration in_rendezvous{};
  Duration in_restart{};
  Duration in_waiting{};
  Duration in_snapshots{};
  Duration in_other{};
  Duration down{};  // not part of the total: nobody was there to lose time

  [[nodiscard]] Duration total() const {
    return in_steps + in_lost_steps + in_rendezvous + in_restart + in_waiting + in_snapshots + in_other;
  }
  // Part of the total that was spent in steps that count: 0..1.
  [[nodiscard]] double goodput() const;
};

// `entries` in the order in which the processes began.
Balance BalanceOf(absl::Span<const LedgerEntry> entries);

// A table for people; each line ends.
std::string LedgerTable(const Balance& balance);
// One line for programs, without end: "event=ledger steps=600 lost_steps=20 ... goodput=0.9312".
std::string LedgerLine(const Balance& balance);

}  // namespace ddprun
