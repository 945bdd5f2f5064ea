// What is done to a simulated job, as text: the settings of the job, then faults with their times. A seed is
// drawn as a script before it runs, so a failing one can be kept, read, edited, made smaller, and run again.
//
//   # Anything after a '#' is a remark.
//   seed 4711                                  noise: delays, losses, durations
//   set min_nodes=2 max_nodes=4 plain=1 ...    JobRules by their wire names, and other Settings; the rest keep their
//                                              defaults
//   0.000 start host=0                         at 0 s an agent is started on host 0
//   12.345 cut-out host=1,2 to=0 for=5.000     nothing of hosts 1 and 2 reaches host 0, until 17.345 s
//   14.000 fail-worker host=3 n=-9             a worker there gets SIGKILL
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/job_rules.h"
#include "base/time.h"

namespace ddprun::sim {

struct Settings {
  uint64_t seed = 1;
  JobRules rules = {.first_last_call = Duration(0),
                    .last_call = Duration(0),
                    .join_timeout = seconds(300),
                    .snapshot_timeout = seconds(20),
                    .max_restarts_without_progress = 0};
  // Of the agents.
  Duration drain_timeout = seconds(30);
  Duration grace = seconds(10);
  // The hosts are 0 to num_hosts-1; the coordinator is in host 0's agent if `hosted`, on a host of its own,
  // num_hosts, if not.
  int num_hosts = 1;
  int hosted = 0;
  int expected_hosts = 0;  // so many of them are named by a scheduler
  // What the workers do: `plain` ones run for a while, each by itself; the others do steps together, report
  // them, and write snapshots.
  int plain = 0;
  int total_steps = 100;
  Duration step_time = milliseconds(500);  // plain: the longest run
  // The longest time from SIGTERM to the end of a worker: it saves what it has. More than `grace`: SIGKILL ends it.
  Duration save = milliseconds(50);
  int snapshot_every = 10;
  // The network on a good day.
  int loss_permille = 0;
  int twice_permille = 0;
  Duration max_delay = milliseconds(5);
  // When faults end, since the start.
  Duration calm = seconds(60);

  bool operator==(const Settings&) const = default;
};

enum class FaultKind {
  kStart,           // an agent is started on the host, unless one runs or it is down
  kKillAgent,       // SIGKILL
  kStopAgent,       // SIGSTOP, SIGCONT after `length`
  kTermAgent,       // SIGTERM
  kKillWarden,      // SIGKILL: the workers go with it
  kPowerOff,        // for `length`; nothing runs there afterwards
  kSuspend,         // everything on the host stands still for `length`
  kFailWorker,      // one that runs ends by itself; n > 0: exit code, n < 0: signal
  kDeafWorkers,     // those of the host heed no SIGTERM for `length`
  kNoExec,          // for `length` workers cannot be started
  kCut,             // between `hosts` and `to`, both ways, for `length`
  kCutOut,          // from `hosts` to `to`
  kCutIn,           // from `to` to `hosts`
  kSlow,            // up to n ms more each way between `hosts` and `to`
  kLossy,           // n of 100 packets are lost
  kReset,           // the connection to the coordinator is reset, as by something between
  kStall,           // the coordinator stands still for `length`
  kEndCoordinator,  // its process is killed
  kDiskFull,        // nothing can be written for `length`
  kDiskSlow,        // a snapshot takes n ms longer for `length`
  kDrain,           // an operator takes the host's node out
  kStopJob,         // an operator ends the job
};

struct Fault {
  Duration at{0};  // since the start
  FaultKind kind = FaultKind::kStart;
  std::vector<int> hosts = {};
  std::vector<int> to = {};  // empty: all others
  Duration length{0};
  int n = 0;

  bool operator==(const Fault&) const = default;
};

struct Script {
  Settings settings;
  std::vector<Fault> faults;  // by time

  bool operator==(const Script&) const = default;
};

absl::string_view ToString(FaultKind kind);
// It acts on links between `hosts` and `to`.
bool IsOfNetwork(FaultKind kind);
// It may keep a node from being heard. Operators, workers and disks do not, nor does the order to end to an agent.
bool MaySilence(FaultKind kind);
// One line, without its end: "12.345 cut-out host=1,2 to=0 for=5.000".
std::string ToString(const Fault& fault);
std::string ToString(const Script& script);
// Errors: kInvalidArgument naming the line and what is wrong with it.
absl::StatusOr<Script> ParseScript(absl::string_view text);

}  // namespace ddprun::sim
