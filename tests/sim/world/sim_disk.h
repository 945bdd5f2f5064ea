// The snapshot directory of a job, on storage that all hosts share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "tests/sim/world/random.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// Each writer is one process: rank 0 of one round. As in the worker SDK, a writer takes over the directory
// before the first step of its round. It writes each snapshot to a temporary file, and publishes the file
// only if no other writer has taken over the directory in the meantime. A writer that is killed during a
// write leaves a torn file. Checks that each published snapshot has a higher step than all earlier ones, even
// after the job is started again.
class SimDisk {
 public:
  using WriterId = uint64_t;  // 0: no writer
  enum class Outcome { kPublished, kFull, kTakenOver };

  struct Snapshot {
    WriterId writer = 0;
    Round round;
    int64_t step = 0;
    bool whole = false;
  };

  SimDisk(SimClock* clock, Trace* trace, Random random)
      : clock_(clock), trace_(trace), random_(std::move(random)) {}
  SimDisk(const SimDisk&) = delete;
  SimDisk& operator=(const SimDisk&) = delete;

  WriterId NewWriter() { return next_writer_++; }
  // The writer that holds the directory.
  WriterId Holder() const { return holder_; }
  // Takes over the directory, unless another writer has taken it over since `seen` was the holder. Returns
  // whether `writer` is the holder now.
  bool Take(WriterId writer, WriterId seen);

  // Calls `done` with the outcome unless the writer is killed first.
  void Write(WriterId writer, Round round, int64_t step, std::function<void(Outcome)> done);
  // The writer's process has exited or was killed.
  void Kill(WriterId writer);
  // The writer's host is suspended. The write continues after Resume.
  void Suspend(WriterId writer);
  void Resume(WriterId writer);

  // The step of the newest whole snapshot, from which a round continues; 0 if there is none.
  int64_t NewestStep() const;
  const std::vector<Snapshot>& snapshots() const { return snapshots_; }

  void SetFull(bool full) { full_ = full; }
  void SetDelay(Duration more) { delay_ = more; }

  int64_t num_torn() const { return num_torn_; }
  int64_t num_taken_over() const { return num_taken_over_; }

 private:
  struct Pending {
    Round round;
    int64_t step = 0;
    std::function<void(Outcome)> done;
    bool suspended = false;
    bool due = false;  // the time of the write passed while the writer was suspended
  };
  void Finish(WriterId writer);

  SimClock* const clock_;
  Trace* const trace_;
  Random random_;
  WriterId next_writer_ = 1;
  WriterId holder_ = 0;
  std::map<WriterId, Pending> pending_;
  std::vector<Snapshot> snapshots_;  // in order of publication
  bool full_ = false;
  Duration delay_{0};
  int64_t num_torn_ = 0;
  int64_t num_taken_over_ = 0;
};

}  // namespace ddprun::sim
