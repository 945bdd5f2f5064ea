// The files that workers touch to show that they make progress: $DDPRUN_HEARTBEAT_FILE.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "os/descriptor.h"

namespace ddprun {

// One file for each worker of this node. The files are memory of this process that the workers see below /proc, so nothing is left of
// them when this process ends, and no file system can delay it.
//   Threads: any, one caller at a time.
class HeartbeatFiles {
 public:
  explicit HeartbeatFiles(int num_workers);

  // Empty if there is no such file, because the system gives no memory or descriptor, or /proc does not show this process.
  std::string path(LocalRank worker) const;
  // The workers whose file has changed since the last call: its time, which may be any, or its size.
  std::vector<LocalRank> Changed();

 private:
  struct State {
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    int64_t size = 0;
    bool operator==(const State&) const = default;
  };
  struct File {
    UniqueFd fd = {};
    State last = {};
  };
  static State StateOf(const File& file);

  std::vector<File> files_;  // by local rank
};

}  // namespace ddprun
