// The workers of this node that did not succeed in one round: kept as they end, then sent to the coordinator
// and shown.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/assignment.h"
#include "base/failure.h"
#include "base/ids.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

//   Threads: one caller at a time.
class NodeFailures {
 public:
  // What is known of an end besides the failure itself.
  struct Notice {
    absl::Time time = {};                 // by the wall clock
    std::string progress = {};            // how far the worker had come, in words, for the cause
    std::optional<int> last_signal = {};  // the last signal that the launcher had sent it
  };
  // What is known only when all workers are gone.
  struct Afterwards {
    std::function<std::string(LocalRank)> stderr_tail;                   // empty: not seen
    std::function<bool(LocalRank)> tail_has_stdout;                      // it has both streams
    std::function<std::vector<std::string>(pid_t)> evidence_of_sigkill;  // one line each
  };

  // `host`: this node's short name.
  NodeFailures(std::string host, std::string role);

  void BeginRound(const Assignment& assignment);
  // `end`: its local_rank, pid, exit, failed_at, uptime and step; the others are filled in here. failed_at is
  // when its end was noticed. Returns its index among records(). REQUIRES: it did not succeed.
  size_t Add(Failure end, const Notice& notice);
  // What the worker at that index has left at `error_file`.
  void AddError(size_t index, WorkerError error, const std::string& error_file);
  void Complete(const Afterwards& afterwards);

  bool empty() const { return records_.empty(); }
  // All of them, for the report in torchrun's look, in the order of Add.
  const std::vector<FailureRecord>& records() const { return records_; }

  // What the coordinator is sent. The failure of this worker as far as it is known by now:
  //   REQUIRES: it was added.
  Failure Of(LocalRank local_rank) const;
  // Those that are not kStopped, by Precedes; at most 64 of them, and the stderr of the first four that
  // differ.
  std::vector<Failure> All() const;

 private:
  // From what is known by now.
  void SetExceptionAndOrigin(FailureRecord& record) const;

  const std::string host_;
  const std::string role_;
  Assignment assignment_;
  std::vector<FailureRecord> records_;  // of the round
};

// The one line that says which worker failed.

// "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57". `progress` is how far it had come, in
// its own words, or empty.
std::string FailureCause(const Failure& failure, absl::string_view progress);

}  // namespace ddprun
