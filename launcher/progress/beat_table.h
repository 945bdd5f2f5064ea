// Measures how long the workers of this node have made no progress. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/job_rules.h"
#include "base/standstill.h"
#include "base/time.h"
#include "base/worker_message.h"

namespace ddprun {

// A beat is a sign that a worker makes progress. The intervals between the beats of a worker determine how long it may stand
// still: --hang-timeout, or, with HangTimeout::Auto(), three times the longest interval of its phase.
//
// Idle time is the sum of the times between the looks since the last beat, each of which counts for at most kLongestLook. So a process
// that was suspended, stopped or starved makes its workers look younger, and never older.
//
//   Order: Begin with each start of the workers, then the other methods, then Over; then again Begin.
//          REQUIRES: `now` never decreases.
class BeatTable {
 public:
  static constexpr Duration kLookEvery = seconds(1);
  static constexpr Duration kLongestLook = seconds(2);
  // The limit of HangTimeout::Auto() is at least kShortest, and kUnlearnt while too few intervals of the phase are known; then, and in
  // WorkerPhase::kFinishing, a worker never counts as hung. The level kStill is reached up to kLookEvery before the limit, because a look
  // may come that much too late.
  static constexpr Duration kShortest = seconds(10);
  static constexpr Duration kUnlearnt = seconds(600);

  // outside: whether Seen is called, so that workers which report nothing can be judged.
  explicit BeatTable(HangTimeout timeout, bool outside) : timeout_(timeout), outside_(outside) {}

  // The workers of a round have started, or have begun another round. What was learnt about phases is kept, unless the size of the world
  // has changed, because steps may take another time then.
  void Begin(int num_workers, int world_size, TimePoint now);
  // A report of a worker. It is a beat if the step or the phase differs from the report before.
  void Reported(LocalRank worker, int64_t step, WorkerPhase phase, TimePoint now);
  // The heartbeat file of a worker has changed.
  void Touched(LocalRank worker, TimePoint now);
  // A sign from outside that a worker makes progress, such as output. Does not count beside reports.
  void Seen(LocalRank worker, TimePoint now);
  // A worker has ended, or is not waited for. It does not count from now on.
  void Ended(LocalRank worker);
  // The round is over. If a worker was hung, the next standstill in its phase may be three times as long.
  void Over(TimePoint now);

  // Adds the time since the last look to the idle times. Returns the level of the node.
  NodeStandstill Look(TimePoint now);
  // The time since the last look does not count, because the workers could not make progress.
  void Skip(TimePoint now);
  // Whether signs from outside count now.
  bool needs_signs() const { return outside_ && !reports_ && is_given(); }

  // The time since the last beat of this worker, or since Begin.
  Duration idle(LocalRank worker) const { return workers_.at(worker.value()).idle; }
  // nullopt: the worker is not judged.
  std::optional<Duration> LimitOf(LocalRank worker) const;

 private:
  struct Intervals {
    int all = 0;         // that count, over all rounds
    int this_round = 0;  // including those that do not count
  };
  struct Worker {
    bool ended = false;
    bool reports = false;
    std::optional<int64_t> step = {};
    WorkerPhase phase = WorkerPhase::kUnspecified;
    Duration idle = {};
    TimePoint looked = {};
    std::map<WorkerPhase, Intervals> intervals = {};
  };

  bool is_given() const { return timeout_ != HangTimeout::Off() && timeout_ != HangTimeout::Auto(); }
  static void Advance(Worker& worker, TimePoint now);
  // Begins a new interval in `phase`.
  void Beat(Worker& worker, WorkerPhase phase, TimePoint now);
  bool Counts(const Worker& worker) const;
  std::optional<Duration> LimitOf(const Worker& worker) const;
  bool Knows(const Worker& worker) const;  // whether enough intervals of its phase are known
  // nullopt: never.
  std::optional<Duration> HungAfter(const Worker& worker) const;
  StandstillLevel LevelOf(const Worker& worker) const;  // REQUIRES: Counts(worker)

  const HangTimeout timeout_;
  const bool outside_;
  int world_size_ = 0;
  bool reports_ = false;  // a worker that has not ended has reported in this round
  std::vector<Worker> workers_;
  std::map<WorkerPhase, Duration> longest_;  // that count, over all rounds and workers
  std::map<WorkerPhase, Duration> cut_off_;  // idle times of hung workers when their rounds ended
};

}  // namespace ddprun
