// A voter that is no node: what `ddprun --store-only` adds to jobs that name it among their endpoints.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "proto/voters.pb.h"
#include "rendezvous/voters/acceptor.h"

namespace ddprun {

// Votes in any number of jobs, and leads none. So of two nodes and a witness, any one may be lost.
//
// It is another voter for each job, and forgets a job by becoming another voter, which is what a restart does. So it may forget
// whenever it wants to; that only costs the job a voter.
//   Pure. Threads: one caller.
class Witness {
 public:
  // Beyond these limits the jobs whose last requests are the oldest are forgotten, and so is each job without a request for kIdle.
  static constexpr size_t kMaxJobs = 1000;
  static constexpr size_t kMaxBytes = 64 << 20;  // of all names of jobs and records
  static constexpr Duration kIdle = std::chrono::hours(1);

  // new_id: returns an id that no voter has.
  explicit Witness(std::function<std::string()> new_id) : new_id_(std::move(new_id)) {}

  // Answers a request to this process as a voter.
  //   Errors: kInvalidArgument: it is malformed; kNotFound: it is for a voter that has been forgotten; kFailedPrecondition: the agents
  //           that found a job have to wait, because the job seems to exist.
  absl::StatusOr<proto::VoteReply> Answer(const proto::VoteRequest& request, TimePoint now);
  // HOST:PORT of the process that leads the job; empty if that is not known.
  std::string Leader(const std::string& run_id, TimePoint now) const;

 private:
  // Of a leader that has not told its lease.
  static constexpr Duration kDefaultLease = seconds(5);
  // A job without a sign of a leader for so many of its leases has none.
  static constexpr int kSilence = 2;

  struct Job {
    Acceptor acceptor;
    TimePoint asked;                 // the last request
    TimePoint heard = {};            // the last sign of a leader; TimePoint(): none
    Duration lease = kDefaultLease;  // of the last leader
    std::string leader = {};         // its address
    bool is_over = false;            // it has said that the job is over
    size_t bytes = 0;                // of the largest request that was accepted
  };

  static bool HasLeader(const Job& job, TimePoint now);
  // Prepares the answer to an agent that founds the job.
  absl::Status Found(const std::string& run_id, TimePoint now);
  Job& Find(const std::string& run_id, TimePoint now);
  size_t Bytes() const;
  void ForgetOldest();
  void TakeNote(Job& job, const RegisterRecord& record, TimePoint now);

  const std::function<std::string()> new_id_;
  std::map<std::string, Job> jobs_;
};

}  // namespace ddprun
