// Evidence that a GPU caused the failure of a worker: which messages of the driver concern the worker, and
// how to say so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "launcher/config/nvml.h"
#include "launcher/gpu/xid.h"

namespace ddprun {

// A message of the driver, which stands for all messages of its kind since the last start of the workers.
struct SeenXid {
  Xid xid = {};
  int count = 1;                         // messages of this kind
  TimePoint at = {};                     // when the first was read, milliseconds after it was written
  std::optional<LocalRank> worker = {};  // the process that it names is this worker or a child of it
  bool has_our_pids = false;             // whether xid.pid is a pid of this process's namespace
};

// Whether the messages have the same GPU, code and process.
bool SameKind(const Xid& a, const Xid& b);

// A worker that has failed.
struct FailedWorker {
  LocalRank local_rank = {};
  std::vector<PciAddress> gpus = {};  // that it can use; empty if they are not known
  TimePoint started = {};
  TimePoint failed = {};
};

// Returns one line for each error of a GPU, or of an NVSwitch, that concerns the worker, in the order of
// time; at most 5. A message concerns the worker that it names. If it names a process of no worker, or none,
// it concerns all workers that can use the GPU. Messages of the same kind are one line. Xid 45 follows other
// errors; it is left out if there is another one before.
std::vector<std::string> XidEvidence(const std::vector<SeenXid>& seen, const FailedWorker& worker);

// Returns one line for each way in which the memory of the GPU has become worse since the worker started.
std::vector<std::string> MemoryEvidence(const PciAddress& gpu, const GpuMemoryHealth& before,
                                        const GpuMemoryHealth& after);

}  // namespace ddprun
