// Keeps the ledger of a job, for the process that leads its round (rank 0).
//
//   LedgerKeeper ledger(env, clock of day, now);      // as early as possible
//   ledger.KeepIn(directory + "/ledger");
//   ledger.Ready(step, now);                          // the first step begins: until here it was rendezvous
//   for each step: ...; ledger.StepDone(step, now);
//   ledger.Book(Activity::kSnapshots, now);           // whatever it was since the last call
//   std::cout << LedgerTable(ledger.Total());
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "worker_sdk/ledger/ledger.h"
#include "worker_sdk/ledger/ledger_file.h"

namespace ddprun {

// Time is an argument; every moment since the process began is booked once.
//   REQUIRES: now never decreases.
//   Errors:   those of the file. What could not be written is in memory, and written with the next.
//   Threads:  one caller at a time.
class LedgerKeeper {
 public:
  // `begin_us`: clock of day at `now`, since 1970.
  LedgerKeeper(const WorkerEnv& env, int64_t begin_us, TimePoint now);

  // From here on the ledger is kept in `path`, too, behind the entries that are there. Without this it is of
  // this process alone. Returns a remark for people, or an empty one.
  absl::StatusOr<std::string> KeepIn(const std::string& path);

  // Steps begin, `step` updates having been done by earlier processes.
  absl::Status Ready(int64_t step, TimePoint now);
  // The time since the last call was spent on this.
  void Book(Activity activity, TimePoint now);
  // The time since the last call was an update, the `step`th; written.
  absl::Status StepDone(int64_t step, TimePoint now);

  [[nodiscard]] Balance Total() const;

 private:
  absl::Status Write();

  LedgerEntry entry_;
  TimePoint booked_until_;
  std::optional<LedgerFile> file_;
};

}  // namespace ddprun
