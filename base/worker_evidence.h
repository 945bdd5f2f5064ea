// What a node knows about one of its workers while the round stands still.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

struct WorkerEvidence {
  // Of the process; of a process below it, if that is the one that is stopped, traced or blocked.
  enum class State {
    kUnknown,  // /proc cannot be read
    kRunning,  // a thread of the worker uses a processor
    kSleeping,
    kStopped,  // by SIGSTOP or the like
    kTraced,   // by a debugger that is not ours
    kBlocked,  // in the kernel, uninterruptibly, in all samples
    kEnded,
  };
  // A collective operation of the SDK.
  struct Operation {
    std::string kind = {};   // for example "all-reduce"; empty: none yet
    int64_t number = 0;      // counts the operations of a communicator, from 0
    bool in_flight = false;  // if false, the last one that has ended
    bool operator==(const Operation&) const = default;
  };

  LocalRank local_rank = {};
  int64_t pid = 0;
  State state = State::kUnknown;
  Duration idle = {};                       // time since the last progress
  std::optional<int64_t> step = {};         // the last one reported
  std::string phase = {};                   // as reported
  std::optional<Operation> operation = {};  // nullopt: unknown
  std::optional<int> gpu_busy = {};  // percent of the last second or so in which its GPU ran some kernel
  // Where the worker is, for people, in one line: its innermost function of interest, or a system call and kernel function;
  // for kTraced, by whom. May be empty.
  std::string place = {};
  std::string stack = {};  // folded: the functions of the innermost frames, one per line; may be empty

  bool operator==(const WorkerEvidence&) const = default;
};

}  // namespace ddprun
