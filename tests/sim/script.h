// A simulation as text: the settings of a job, then faults with their times. A seed becomes a script before
// it runs, so a failing one can be stored, edited, minimized and run again.
//
//   # Anything after a '#' is a comment.
//   seed 4711                                  for random delays, losses and durations
//   set min_nodes=2 max_nodes=4 plain=1 ...    JobRules by their wire names, and other Settings;
//                                              the rest keep their defaults
//   0.000 start host=0                         at 0 s an agent starts on host 0
//   12.345 cut-out host=1,2 to=0 for=5.000     packets from hosts 1 and 2 to host 0 are lost until 17.345 s
//   14.000 fail-worker host=3 n=-9             SIGKILL ends a worker on host 3
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
  // Options of the agents.
  Duration drain_timeout = seconds(30);
  Duration grace = seconds(10);
  // Hosts are 0 to num_hosts-1. The coordinator runs in the agent of host 0 if `hosted`, otherwise on a
  // separate host with index num_hosts.
  int num_hosts = 1;
  int hosted = 0;
  int expected_hosts = 0;  // number of hosts that a scheduler names, from host 0 on
  // Workers: `plain` ones run independently for a random time. Others do steps together, report
  // them, and write snapshots.
  int plain = 0;
  int total_steps = 100;
  Duration step_time = milliseconds(500);  // plain: the longest run
  // Upper bound of the time that a worker takes to save and exit after SIGTERM.
  // SIGKILL follows after `grace`.
  Duration save = milliseconds(50);
  int snapshot_every = 10;
  // The network without faults.
  int loss_permille = 0;
  int twice_permille = 0;
  Duration max_delay = milliseconds(5);
  // Faults end at this time since the start.
  Duration calm = seconds(60);

  bool operator==(const Settings&) const = default;
};

enum class FaultKind {
  kStart,           // starts an agent unless one runs or the host is down
  kKillAgent,       // SIGKILL
  kStopAgent,       // SIGSTOP, SIGCONT after `length`
  kTermAgent,       // SIGTERM
  kKillWarden,      // SIGKILL; the workers die with it
  kPowerOff,        // for `length`; no process runs there afterwards
  kSuspend,         // suspends the whole host for `length`
  kFailWorker,      // one running worker fails; n > 0: exit code, n < 0: signal
  kDeafWorkers,     // workers of the host ignore SIGTERM for `length`
  kNoExec,          // workers cannot be started for `length`
  kCut,             // between `hosts` and `to`, both directions, for `length`
  kCutOut,          // from `hosts` to `to`
  kCutIn,           // from `to` to `hosts`
  kSlow,            // up to n ms more delay per direction between `hosts` and `to`
  kLossy,           // n percent of the packets are lost
  kReset,           // resets the connection to the coordinator, as a middlebox does
  kStall,           // stops the coordinator for `length`
  kEndCoordinator,  // SIGKILL to the coordinator's process
  kDiskFull,        // writes fail for `length`
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
// The fault acts on links between `hosts` and `to`.
bool IsOfNetwork(FaultKind kind);
// The fault may delay or stop the heartbeats of a node. Faults of operators, workers and disks do not, nor
// does SIGTERM to an agent.
bool MaySilence(FaultKind kind);
// One line without a newline: "12.345 cut-out host=1,2 to=0 for=5.000".
std::string ToString(const Fault& fault);
std::string ToString(const Script& script);
// Errors: kInvalidArgument: the message names the line or the fault, and the cause.
absl::StatusOr<Script> ParseScript(absl::string_view text);

}  // namespace ddprun::sim
