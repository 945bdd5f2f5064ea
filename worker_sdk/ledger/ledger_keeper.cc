#include "worker_sdk/ledger/ledger_keeper.h"

#include <chrono>
#include <string_view>
#include <vector>

#include "ddprun/status.h"

namespace ddprun {
namespace {

// FNV-1a. Unlike std::hash, it gives the same value in every build.
int64_t HashOf(std::string_view text) {
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

StatusOr<std::string> LedgerKeeper::KeepIn(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(LedgerFile file, LedgerFile::Open(path));
  file_.emplace(std::move(file));
  DDPRUN_RETURN_IF_ERROR(Write());
  return file_->remark();
}

Status LedgerKeeper::Ready(int64_t step, TimePoint now) {
  Book(Activity::kRendezvous, now);
  entry_.first_step = entry_.last_step = step;
  return Write();
}

void LedgerKeeper::Book(Activity activity, TimePoint now) {
  // Book only whole microseconds, and leave the remainder for the next call.
  const auto spent = std::chrono::floor<std::chrono::microseconds>(now - booked_until_);
  entry_.spent(activity) += spent.count();
  booked_until_ += spent;
}

Status LedgerKeeper::StepDone(int64_t step, TimePoint now) {
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

Status LedgerKeeper::Write() { return file_ ? file_->Write(entry_) : OkStatus(); }

}  // namespace ddprun
