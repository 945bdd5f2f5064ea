// A job event with torchrun's names and fields.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Fields that describe the agent and its current or last round.
struct EventContext {
  std::string run_id;
  std::string role;
  std::string hostname;
  std::string rdzv_backend;                  // static or c10d
  std::string entry_point;                   // file name of the program, such as python3
  std::optional<int> group_rank = {};        // nullopt before the first round
  std::optional<int> group_world_size = {};  // nullopt before the first round
  int agent_restarts = 0;
  int64_t total_run_time = 0;  // whole seconds; 0 until the agent has ended
};

struct EventWorker {
  Rank rank;
  LocalRank local_rank;
  int role_rank = 0;
  int role_world_size = 0;
  pid_t pid = 0;
  std::optional<int> exit_code = {};     // set only if the worker failed
  std::optional<pid_t> failed_pid = {};  // set only if the worker failed
};

struct JobEvent {
  std::string state;                       // START, SUCCEEDED, ...
  std::optional<EventWorker> worker = {};  // nullopt if the event is about the agent
  std::optional<std::string> raw_error = {};
  std::optional<double> duration_ms = {};
};

// Returns torchrun's JSON for the event, in the format of Python's json.dumps: one line, without a newline.
std::string FormatEvent(const EventContext& context, const JobEvent& event);

// Like FormatEvent, but for a watchdog event. `metadata` is JSON text.
std::string FormatWatchdogEvent(const EventContext& context, absl::string_view name,
                                const std::string& metadata);

}  // namespace ddprun
