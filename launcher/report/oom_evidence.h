// Detects from the kernel's counters and log whether its OOM killer killed a worker.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/descriptor.h"

namespace ddprun {

// One object per start of the workers; events after its construction count as evidence. Reads the memory
// controllers of cgroup v2 and v1, and the kernel's log if this process may read it and is in the initial PID
// namespace (in most containers it is not). Sources that cannot be read are skipped.
//   Cost:    about 0.1 ms for the constructor and 15 us for each Add; call them after starting the workers.
//   Threads: one caller at a time.
class OomWatch {
 public:
  // Paths of the system's files; replaced in tests.
  struct Files {
    std::string proc = "/proc";
    std::string root = {};  // prefix of the mount points in /proc/self/mountinfo
    std::string kernel_log = "/dev/kmsg";
  };

  OomWatch() : OomWatch(Files()) {}
  explicit OomWatch(Files files);

  // Registers a started worker and looks up its control group, which may differ from this process's.
  void Add(pid_t worker);

  // Returns the evidence about the end of `worker`, one line each; empty if there is none. The kernel writes
  // its log shortly after the kill, so call this after the other workers have ended, too.
  //   REQUIRES: `worker` was killed by a SIGKILL that the launcher did not send.
  std::vector<std::string> Evidence(pid_t worker);

 private:
  // A mount of the memory controller.
  struct Mount {
    std::string point;  // mount point, prefixed with files_.root
    std::string root;   // the control group that is mounted there
    bool v2 = false;
  };
  struct Group {
    std::string name;  // the kernel's name: "/job/step0"
    std::string dir;
    int64_t kills = 0;  // OOM kills in the group when it was looked up
  };

  std::vector<Mount> FindMounts() const;
  std::optional<Group> GroupOf(const std::string& process) const;
  std::optional<int64_t> Kills(const std::string& dir) const;
  // The smallest limit of the group and its ancestors; nullopt: no limit.
  std::optional<int64_t> Limit(const Group& group) const;
  std::string LimitText(const Group& group) const;
  void ReadKernelLog();

  const Files files_;
  const std::vector<Mount> mounts_;
  std::optional<Group> own_;
  std::map<pid_t, Group> others_;        // groups of workers that are not in own_
  UniqueFd kernel_log_;                  // at the next unread record; empty: not usable
  std::map<pid_t, std::string> killed_;  // evidence from the log, by process
};

}  // namespace ddprun
