// Signs of progress of workers that report nothing, as seen from outside: processor time, and bytes that they write.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"

namespace ddprun {

// What a process, and those that its main thread has started, and so on, have used since their start.
struct Activity {
  Duration cpu = {};
  uint64_t written = 0;  // bytes of write(), to files, pipes and terminals; not to sockets
  bool operator==(const Activity&) const = default;
};
using Activities = std::map<pid_t, Activity>;

// Returns the process `worker`, those that its main thread has started, and so on; at most 256. May block for as long as /proc does.
std::vector<pid_t> ProcessesOf(pid_t worker);

// Reads /proc. Processes that have ended are not in the result. May block for as long as /proc does.
Activities ReadActivities(const std::vector<pid_t>& workers);

// Compares activities. Pure.
class ActivityTable {
 public:
  // A process makes progress if it uses at least a tenth of a processor, or writes. One that waits for its peers does neither, except
  // with NCCL, which waits with a whole processor. So while NCCL's RAS knows that some ranks have launched operations that others have
  // not, processor time is no sign of progress; instead, another number of operations is.
  static constexpr int kBusyShare = 10;

  // The activities at `now`, which must be later than before. Returns the processes that have made progress since the call before; not
  // those that are new.
  std::vector<pid_t> Progressed(Activities activities, TimePoint now);
  struct Operations {
    uint64_t launched = 0;
    bool differ = false;  // the ranks have launched different numbers
  };
  // What RAS knows of the processes; those that are left out are not known to it. nullopt: it has not answered, which is forgiven
  // kMissed times in a row. Returns the processes whose number has changed since the last answer.
  std::vector<pid_t> Launched(std::optional<std::map<pid_t, Operations>> operations);
  static constexpr int kMissed = 3;

 private:
  std::map<pid_t, Operations> operations_;
  int missed_ = 0;
  Activities last_;
  TimePoint last_at_ = {};
};

}  // namespace ddprun
