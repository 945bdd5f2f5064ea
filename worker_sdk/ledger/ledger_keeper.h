// Keeps the ledger of a job in the process that leads the round (rank 0).
//
//   LedgerKeeper ledger(env, wall_clock_us, now);     // as early as possible
//   ledger.KeepIn(directory + "/ledger");
//   ledger.Ready(step, now);                          // when the first step begins; books rendezvous time
//   for each step: ...; ledger.StepDone(step, now);
//   ledger.Book(Activity::kSnapshots, now);           // assigns the time since the previous call
//   std::cout << LedgerTable(ledger.Total());
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "base/worker_env.h"
#include "ddprun/status.h"
#include "worker_sdk/ledger/ledger.h"
#include "worker_sdk/ledger/ledger_file.h"

namespace ddprun {

// The caller passes the time as an argument. Every moment since the process began is booked exactly once.
//   REQUIRES: `now` never decreases.
//   Errors:   those of LedgerFile. Data that could not be written is kept in memory and written by the next
//             call.
//   Threads:  one caller at a time.
class LedgerKeeper {
 public:
  // `begin_us`: wall clock time at `now`, in microseconds since 1970.
  LedgerKeeper(const WorkerEnv& env, int64_t begin_us, TimePoint now);

  // Opens the ledger file at `path` and writes this process's entry after the existing entries. Later calls
  // that write the entry write to this file. Without this call, the ledger covers only this process. Returns
  // LedgerFile::remark().
  StatusOr<std::string> KeepIn(const std::string& path);

  // Books the time so far as spent on rendezvous, and writes the entry. `step` is the number of updates done
  // by earlier processes.
  Status Ready(int64_t step, TimePoint now);
  // Books the time that has passed since the previous call as spent on `activity`. Does not write the entry.
  void Book(Activity activity, TimePoint now);
  // Books the time that has passed since the previous call as spent on update number `step`, and writes the
  // entry.
  Status StepDone(int64_t step, TimePoint now);

  [[nodiscard]] Balance Total() const;

 private:
  Status Write();

  LedgerEntry entry_;
  TimePoint booked_until_;
  std::optional<LedgerFile> file_;
};

}  // namespace ddprun
