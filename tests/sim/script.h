// A script describes a simulation as text: the settings of a job, then the faults with their times. A seed is
// converted to a script before it runs, so that a failing run can be saved, edited, minimized and repeated.
//
//   # Anything after a '#' is a comment.
//   seed 4711                                  determines random delays, losses and durations
//   set min_nodes=2 max_nodes=4 plain=1 ...    fields of JobRules, by their wire names, and other Settings;
//                                              fields that are not listed keep their defaults
//   0.000 start host=0                         at 0 s an agent starts on host 0
//   12.345 cut-out host=1,2 to=0 for=5.000     packets from hosts 1 and 2 to host 0 are lost until 17.345 s
//   14.000 fail-worker host=3 n=-9             SIGKILL kills a worker on host 3
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
                    .max_restarts_without_progress = 0,
                    .hang_timeout = HangTimeout::Off()};
  // Options of the agents.
  Duration drain_timeout = seconds(30);
  Duration grace = seconds(10);
  // Hosts are 0 to num_hosts-1. The coordinator runs in the agent of host 0 if `hosted`, otherwise on a
  // separate host with index num_hosts.
  int num_hosts = 1;
  int hosted = 0;
  // The job has a register: each agent has a coordinator in its process, one of which leads. Then `hosted` counts as 0, and in
  // faults num_hosts stands for the host of the process that leads at that time, or has led last.
  int with_register = 0;
  // The register is kept by the job's voters instead of a service. Only with_register.
  int voters = 0;
  int expected_hosts = 0;  // > 0: agents expect hosts 0 to expected_hosts-1, as from a scheduler's list
  // If `plain`, each worker runs independently for a random time. Otherwise the workers do steps together,
  // report them and write snapshots.
  int plain = 0;
  int total_steps = 100;
  Duration step_time = milliseconds(500);  // mean duration of a step; if `plain`, a worker's longest run time
  // Upper bound on the time that a worker takes to save and exit after SIGTERM. Workers that still run after
  // `grace` are killed.
  Duration save = milliseconds(50);
  int snapshot_every = 10;
  int survives = 0;                  // whether workers ask to survive their rounds
  Duration park = milliseconds(20);  // upper bound on the time that a worker takes to park when it is asked
  // What workers do when they are asked to stop because of a notice of pre-emption. Workers that do steps agree on the last
  // one, and the first worker writes a snapshot of it.
  enum OnNotice { kExit = 0, kPark = 1, kIgnore = 2, kEndBySignal = 3 };
  int on_notice =
      kExit;  // kPark: as kExit, but workers that survive park; kEndBySignal: at once, without a snapshot
  // Quality of the network when no fault is in effect.
  int loss_permille = 0;                 // packets lost per 1000
  int twice_permille = 0;                // packets duplicated per 1000
  Duration max_delay = milliseconds(5);  // of a packet
  // All faults end this long after the start.
  Duration calm = seconds(60);

  bool operator==(const Settings&) const = default;
};

enum class FaultKind {
  kStart,        // starts an agent, unless one runs or the host is down or suspended
  kKillAgent,    // sends SIGKILL to the agent
  kStopAgent,    // sends SIGSTOP to the agent, and SIGCONT after `length`
  kTermAgent,    // sends SIGTERM to the agent
  kKillWarden,   // sends SIGKILL to the warden; its workers die too
  kPowerOff,     // cuts the host's power for `length`; its processes do not restart by themselves
  kSuspend,      // suspends the whole host for `length`
  kFailWorker,   // ends one running worker: n > 0 is its exit code, n < 0 is signal -n
  kHangWorkers,  // for `length`, workers of the host do not park
  kEndParked,    // ends one worker of the host that has parked
  kFailAt,  // ends one worker of the host when it has prepared (n=0), committed (n=1) or recovered (n=2) a step
  kDeafWorkers,     // for `length`, workers of the host ignore SIGTERM and notices of pre-emption
  kNoExec,          // for `length`, workers cannot be started on the host
  kCut,             // for `length`, loses all packets between `hosts` and `to`
  kCutOut,          // like kCut, but only packets from `hosts` to `to`
  kCutIn,           // like kCut, but only packets from `to` to `hosts`
  kSlow,            // for `length`, delays packets between `hosts` and `to` by up to n more ms
  kLossy,           // for `length`, loses n percent of the packets between `hosts` and `to`
  kReset,           // resets the agent's connection to the coordinator, as a middlebox does
  kStall,           // stops the coordinator for `length`
  kEndCoordinator,  // sends SIGKILL to the coordinator's process
  kDiskFull,        // for `length`, writes of snapshots fail
  kDiskSlow,        // for `length`, a snapshot takes n ms longer
  kDrain,           // an operator drains the host's node
  kNotice,  // the host is pre-empted after `length`: a signal tells the agent; n != 0: an operator tells the
            // coordinator; n > 0: and says that the node returns after n ms
  kRegisterDown,   // for `length`, the register's service is down
  kRegisterCut,    // for `length`, the hosts do not reach the register
  kRegisterSlow,   // for `length`, requests to the register and answers take up to n ms longer
  kRegisterLossy,  // for `length`, n percent of the requests to the register are lost, late or not answered
  kHangRank,       // from its next step on, one worker of the host makes no steps until it is killed
  kStallRank,      // the same, for `length`
  kSlowRank,       // for `length`, steps of the host take n percent of their time
  kStopJob,        // an operator stops the job
};

struct Fault {
  Duration at{0};  // since the start
  FaultKind kind = FaultKind::kStart;
  std::vector<int> hosts = {};
  std::vector<int> to = {};  // empty: all hosts that are not in `hosts`
  Duration length{0};
  int n = 0;  // its meaning depends on `kind`; see FaultKind

  bool operator==(const Fault&) const = default;
};

struct Script {
  Settings settings;
  std::vector<Fault> faults;  // ordered by `at`

  bool operator==(const Script&) const = default;
};

// A shorter notice leaves no time to kill the workers.
inline constexpr Duration kShortestNotice = seconds(1);

absl::string_view ToString(FaultKind kind);
// Whether the fault acts on running workers of one host only. See DoToWorkers.
bool IsOfWorkers(FaultKind kind);
// Whether the fault acts on links between `hosts` and `to`.
bool IsOfNetwork(FaultKind kind);
// Whether the fault is one of the service that keeps the register.
bool IsOfRegister(FaultKind kind);
// Whether the fault may delay or stop the heartbeats of a node. False for starts, requests from operators,
// faults of workers and disks, and SIGTERM to an agent.
bool MaySilence(FaultKind kind);
// One line without a newline, for example "12.345 cut-out host=1,2 to=0 for=5.000".
std::string ToString(const Fault& fault);
std::string ToString(const Script& script);
//   Errors: kInvalidArgument: the text is not a valid script. The message names the line or the fault, and
//           the cause.
absl::StatusOr<Script> ParseScript(absl::string_view text);

}  // namespace ddprun::sim
