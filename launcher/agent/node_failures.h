// The workers of this node that did not end well in one round: kept as they come, then told to the
// coordinator and shown.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/assignment.h"
#include "base/exit_info.h"
#include "base/ids.h"
#include "base/time.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_record.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

//   Threads: one caller at a time.
class NodeFailures {
 public:
  struct End {
    LocalRank local_rank;
    pid_t pid = 0;  // 0: never started
    ExitInfo exit;
    TimePoint when = {};
    Duration uptime = {};
    std::optional<int64_t> step = {};  // the last that it reported
    std::string progress = {};         // the same in words, for the cause
    std::optional<int> told = {};      // the last signal that the launcher had sent it
  };
  // What is known only when all workers are gone.
  struct Afterwards {
    std::function<std::string(LocalRank)> stderr_tail;                   // empty: not seen
    std::function<std::vector<std::string>(pid_t)> evidence_of_sigkill;  // one line each
  };

  // `host`: this node's short name.
  NodeFailures(std::string host, std::string role);

  void BeginRound(const Assignment& assignment);
  // Returns its index among records(). REQUIRES: it did not succeed.
  size_t Add(const End& end);
  // What the worker at that index has left at `error_file`.
  void AddError(size_t index, WorkerError error, const std::string& error_file);
  void Complete(const Afterwards& afterwards);

  bool empty() const { return records_.empty(); }
  // All of them, for the report in torchrun's look, in the order of Add.
  const std::vector<FailureRecord>& records() const { return records_; }

  // The failure of this worker as far as it is known by now.
  //   REQUIRES: it was added.
  proto::Failure Encode(LocalRank local_rank, TimePoint now) const;
  // Those that failed by themselves, the earliest first; at most 64 of them, and the stderr of the first four
  // that differ. Workers that obeyed a signal of the launcher, or ended after it without a word, are none.
  std::vector<proto::Failure> EncodeAll(TimePoint now) const;

 private:
  proto::Failure Encode(size_t i, TimePoint now) const;
  bool FailedByItself(size_t i) const;
  std::string ExceptionOf(size_t i) const;

  const std::string host_;
  const std::string role_;
  Assignment assignment_;
  std::vector<End> ends_;  // of the round, and what they make, at the same index:
  std::vector<FailureRecord> records_;
  std::vector<std::vector<std::string>> evidence_;  // empty until Complete
};

}  // namespace ddprun
