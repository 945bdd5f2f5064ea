#include "worker_sdk/ledger/ledger.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using std::chrono::microseconds;

int64_t EndOf(const LedgerEntry& e) {
  return std::accumulate(e.spent_us.begin(), e.spent_us.end(), e.begin_us);
}

void AddGap(const LedgerEntry& before, const LedgerEntry& after, Balance& balance) {
  const int64_t gap_us = after.begin_us - EndOf(before);
  if (gap_us < 0) ++balance.clock_steps;
  const Duration gap = microseconds(std::max<int64_t>(0, gap_us));
  if (after.job != before.job || after.round <= before.round) {
    ++balance.downs;
    balance.down += gap;
  } else if (after.restart_count > before.restart_count) {
    ++balance.restarts;
    balance.in_restart += gap;
  } else {
    ++balance.waits;
    balance.in_waiting += gap;
  }
}

double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

std::string Times(int64_t n, std::string_view one, std::string_view many) {
  return StrCat(n, " ", n == 1 ? one : many);
}

}  // namespace

double Balance::goodput() const {
  return total() > Duration::zero() ? Seconds(in_steps) / Seconds(total()) : 0;
}

Balance BalanceOf(std::span<const LedgerEntry> entries) {
  Balance balance;
  // Iterates backwards, because a step is lost if any later process repeats it.
  int64_t begun_at = std::numeric_limits<int64_t>::max();
  for (size_t i = entries.size(); i-- > 0;) {
    const LedgerEntry& e = entries[i];
    ++balance.processes;
    balance.in_rendezvous += microseconds(e.spent(Activity::kRendezvous));
    balance.in_snapshots += microseconds(e.spent(Activity::kSnapshots));
    balance.in_other += microseconds(e.spent(Activity::kOther));
    if (i + 1 < entries.size()) AddGap(e, entries[i + 1], balance);
    if (e.first_step == kNoStep) continue;
    const int64_t done = e.last_step - e.first_step;
    const int64_t lost = std::clamp<int64_t>(e.last_step - begun_at, 0, done);
    const Duration in_steps = microseconds(e.spent(Activity::kSteps));
    const Duration in_lost =
        done == 0 ? Duration::zero()
                  : std::chrono::duration_cast<Duration>(in_steps * (static_cast<double>(lost) / done));
    balance.steps += done - lost;
    balance.lost_steps += lost;
    balance.in_steps += in_steps - in_lost;
    balance.in_lost_steps += in_lost;
    begun_at = std::min(begun_at, e.first_step);
  }
  return balance;
}

std::string LedgerTable(const Balance& b) {
  const Duration total = b.total();
  std::string table =
      Format("ledger: %.1f s, of which %.1f %% in steps that count\n", Seconds(total), 100 * b.goodput());
  const auto add = [&](const char* what, Duration time, const std::string& remark) {
    const double percent = total > Duration::zero() ? 100 * Seconds(time) / Seconds(total) : 0;
    table += Format("  %-11s %10.3f s %6.2f %%  %s\n", what, Seconds(time), percent, remark.c_str());
  };
  add("steps", b.in_steps, Times(b.steps, "step", "steps"));
  add("lost steps", b.in_lost_steps, StrCat(b.lost_steps, " repeated later"));
  add("rendezvous", b.in_rendezvous, StrCat("of ", Times(b.processes, "process", "processes")));
  add("restart", b.in_restart, StrCat("after ", Times(b.restarts, "failure", "failures")));
  add("waiting", b.in_waiting, StrCat("for nodes, ", Times(b.waits, "time", "times")));
  add("snapshots", b.in_snapshots, "");
  add("other", b.in_other, "");
  for (std::string::size_type at; (at = table.find(" \n")) != std::string::npos;) table.erase(at, 1);
  if (b.downs > 0) {
    table += Format("  not counted: %.3f s between starts of the job (%s)\n", Seconds(b.down),
                    Times(b.downs, "time", "times").c_str());
  }
  if (b.clock_steps > 0) {
    StrAppend(&table, "  a wall clock was set back: ", Times(b.clock_steps, "gap", "gaps"),
              " between processes counted as zero\n");
  }
  return table;
}

std::string LedgerLine(const Balance& b) {
  const std::string counts = StrCat("event=ledger steps=", b.steps, " lost_steps=", b.lost_steps,
                                    " processes=", b.processes, " restarts=", b.restarts, " waits=", b.waits,
                                    " downs=", b.downs, " clock_steps=", b.clock_steps);
  return counts +
         Format(
             " total_s=%.6f steps_s=%.6f lost_steps_s=%.6f rendezvous_s=%.6f restart_s=%.6f waiting_s=%.6f "
             "snapshots_s=%.6f other_s=%.6f down_s=%.6f goodput=%.4f",
             Seconds(b.total()), Seconds(b.in_steps), Seconds(b.in_lost_steps), Seconds(b.in_rendezvous),
             Seconds(b.in_restart), Seconds(b.in_waiting), Seconds(b.in_snapshots), Seconds(b.in_other),
             Seconds(b.down), b.goodput());
}

}  // namespace ddprun
