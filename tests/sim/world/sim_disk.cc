#include "tests/sim/world/sim_disk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {

bool SimDisk::Take(WriterId writer, WriterId seen) {
  if (holder_ != seen) {
    ++num_taken_over_;
    return false;
  }
  holder_ = writer;
  return true;
}

void SimDisk::Write(WriterId writer, Round round, int64_t step, std::function<void(Outcome)> done) {
  pending_[writer] = {round, step, std::move(done)};
  const Duration length = random_.Between(milliseconds(5), milliseconds(300)) + delay_;
  clock_->After(length, [this, writer] {
    const auto it = pending_.find(writer);
    if (it == pending_.end()) return;
    if (it->second.suspended) {
      it->second.due = true;
    } else {
      Finish(writer);
    }
  });
}

void SimDisk::Finish(WriterId writer) {
  const Pending write = std::move(pending_.extract(writer).mapped());
  if (holder_ != writer) {
    ++num_taken_over_;
    return write.done(Outcome::kTakenOver);
  }
  if (full_) return write.done(Outcome::kFull);
  if (write.step <= NewestStep()) {
    trace_->Broken(clock_->now(),
                   absl::StrCat("a snapshot of step ", write.step, " follows one of step ", NewestStep()));
  }
  snapshots_.push_back({writer, write.round, write.step, true});
  write.done(Outcome::kPublished);
}

void SimDisk::Kill(WriterId writer) {
  const auto it = pending_.find(writer);
  if (it == pending_.end()) return;
  // Part of the file may be visible, as on storage that reorders writes. Its checksum shows that it is torn.
  ++num_torn_;
  snapshots_.push_back({writer, it->second.round, it->second.step, false});
  pending_.erase(it);
}

void SimDisk::Suspend(WriterId writer) {
  if (const auto it = pending_.find(writer); it != pending_.end()) it->second.suspended = true;
}

void SimDisk::Resume(WriterId writer) {
  const auto it = pending_.find(writer);
  if (it == pending_.end()) return;
  it->second.suspended = false;
  if (it->second.due) Finish(writer);
}

int64_t SimDisk::NewestStep() const {
  int64_t newest = 0;
  for (const Snapshot& snapshot : snapshots_) {
    if (snapshot.whole) newest = std::max(newest, snapshot.step);
  }
  return newest;
}

}  // namespace ddprun::sim
