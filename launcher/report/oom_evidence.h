// Whether the kernel's OOM killer ended a worker: its counters and its log.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/unique_fd.h"

namespace ddprun {

// One for each start of the workers, made with it: what happens from then on is evidence. Knows the memory
// controller of control groups v2 and v1, and the kernel's log where this process may read it and numbers
// processes as the kernel does (it does not in most containers). What cannot be read is no evidence.
//   Cost:    some 0.1 ms to make and 15 us for each worker; best after the starts have been ordered.
//   Threads: one caller at a time.
class OomWatch {
 public:
  // Where the system's files are; others in tests.
  struct Files {
    std::string proc = "/proc";
    std::string root = {};  // in front of the mount points that proc names
    std::string kernel_log = "/dev/kmsg";
  };

  OomWatch() : OomWatch(Files()) {}
  explicit OomWatch(Files files);

  // `worker` has been started: looks up its control group, which may be another than ours.
  void Add(pid_t worker);

  // What the system knows about the end of `worker`, one line each; empty when it knows nothing.
  //   REQUIRES: it was ended by SIGKILL, and nobody here has sent that.
  //   The kernel writes its log a moment after it has killed: better asked when the other workers are gone,
  //   too.
  std::vector<std::string> Evidence(pid_t worker);

 private:
  // Of the memory controller.
  struct Mount {
    std::string point;  // with files_.root in front
    std::string root;   // the group that is mounted there
    bool v2 = false;
  };
  struct Group {
    std::string name;  // as the kernel names it: "/job/step0"
    std::string dir;
    int64_t kills = 0;  // of its processes so far
  };

  std::vector<Mount> FindMounts() const;
  std::optional<Group> GroupOf(const std::string& process) const;
  std::optional<int64_t> Kills(const std::string& dir) const;
  // The least of the limits of the group and of those above it; none: it has no limit.
  std::optional<int64_t> Limit(const Group& group) const;
  std::string LimitText(const Group& group) const;
  void ReadKernelLog();

  const Files files_;
  const std::vector<Mount> mounts_;
  std::optional<Group> own_;
  std::map<pid_t, Group> others_;        // workers in other groups than ours
  UniqueFd kernel_log_;                  // at what is written from now on; none: of no use to us
  std::map<pid_t, std::string> killed_;  // what the log said of whom
};

}  // namespace ddprun
