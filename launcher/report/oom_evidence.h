// Detects from the kernel's counters and log whether the OOM killer killed a worker.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/kernel_log.h"

namespace ddprun {

// Create a new OomWatch each time the workers are started, because only later OOM kills count as evidence. An
// OomWatch reads the memory controllers of cgroup v2 and v1. It also reads the kernel's log if this process
// has permission and is in the initial PID namespace. Most containers have a separate PID namespace. Sources
// that cannot be read are skipped.
//   Cost:    about 0.1 ms for the constructor and 15 us for each Add. Call both after starting the workers,
//            so that they do not delay the start.
//   Threads: one caller at a time.
class OomWatch {
 public:
  // Paths of the system's files. Tests replace them.
  struct Files {
    std::string proc = "/proc";
    std::string root = {};  // prefix of the mount points in /proc/self/mountinfo
    std::string kernel_log = "/dev/kmsg";
  };

  OomWatch() : OomWatch(Files()) {}
  explicit OomWatch(Files files);

  // Registers a started worker. Looks up the worker's control group, which may differ from the control group
  // of this process.
  void Add(pid_t worker);

  // Returns lines of evidence that the OOM killer killed `worker`; empty if there is none. The kernel writes
  // its log a short time after the kill, so call this only after all workers have ended.
  //   REQUIRES: `worker` was killed by a SIGKILL that the launcher did not send.
  std::vector<std::string> Evidence(pid_t worker);

 private:
  // A mount of the memory controller.
  struct Mount {
    std::string point;  // mount point, prefixed with files_.root
    std::string root;   // the control group mounted at `point`
    bool v2 = false;
  };
  struct Group {
    std::string name;  // the kernel's name for the group, such as "/job/step0"
    std::string dir;
    int64_t kills = 0;  // number of OOM kills in the group when the group was looked up
  };

  std::vector<Mount> FindMounts() const;
  std::optional<Group> GroupOf(const std::string& process) const;
  std::optional<int64_t> Kills(const std::string& dir) const;
  // Returns the smallest memory limit of the group and its ancestors, in bytes; nullopt if none has a limit.
  std::optional<int64_t> Limit(const Group& group) const;
  std::string LimitText(const Group& group) const;
  void ReadKernelLog();

  const Files files_;
  const std::vector<Mount> mounts_;
  std::optional<Group> own_;
  std::map<pid_t, Group> others_;        // groups of the workers whose group is not own_
  std::optional<KernelLog> kernel_log_;  // nullopt if the log is not used
  std::map<pid_t, std::string> killed_;  // evidence from the kernel's log, keyed by PID
};

}  // namespace ddprun
