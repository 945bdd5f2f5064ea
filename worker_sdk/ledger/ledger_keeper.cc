#include "worker_sdk/ledger/ledger_keeper.h"

#include <chrono>
#include <vector>

#include "base/status_macros.h"

namespace ddprun {
namespace {

// FNV-1a. Unlike std::hash, it gives the same value in every build.
int64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<int64_t>(hash);
}

}  // namespace

LedgerKeeper::LedgerKeeper(const WorkerEnv& env, int64_t begin_us, TimePoint now)
    : entry_{.job = HashOf(env.run_id),
             .round = env.round.value(),
             .restart_count = env.restart_count,
             .world_size = env.world_size,
             .begin_us = begin_us},
      booked_until_(now) {}

absl::StatusOr<std::string> LedgerKeeper::KeepIn(const std::string& path) {
  ASSIGN_OR_RETURN(LedgerFile file, LedgerFile::Open(path));
  file_.emplace(std::move(file));
  RETURN_IF_ERROR(Write());
  return file_->remark();
}

absl::Status LedgerKeeper::Ready(int64_t step, TimePoint now) {
  Book(Activity::kRendezvous, now);
  entry_.first_step = entry_.last_step = step;
  return Write();
}

void LedgerKeeper::Book(Activity activity, TimePoint now) {
  // Whole microseconds; the remainder is left for the next call.
  const auto spent = std::chrono::floor<std::chrono::microseconds>(now - booked_until_);
  entry_.spent(activity) += spent.count();
  booked_until_ += spent;
}

absl::Status LedgerKeeper::StepDone(int64_t step, TimePoint now) {
  Book(Activity::kSteps, now);
  entry_.last_step = step;
  return Write();
}

Balance LedgerKeeper::Total() const {
  std::vector<LedgerEntry> entries;
  if (file_) entries = file_->earlier();
  entries.push_back(entry_);
  return BalanceOf(entries);
}

absl::Status LedgerKeeper::Write() { return file_ ? file_->Write(entry_) : absl::OkStatus(); }

}  // namespace ddprun
