// A fake machine for tests that parse command lines.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "launcher/config/gpus.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// A machine with 6 CPUs and `gpus` GPUs. If `gpus` is an error, counting the GPUs fails with this error.
struct Machine {
  absl::StatusOr<int> gpus = absl::FailedPreconditionError("no driver");
  std::map<std::string, std::string> env = {};
  std::map<std::string, std::string> files = {};
  std::optional<ScheduledJob> from_starter = {};

  absl::StatusOr<Command> Parse(const std::vector<std::string>& args) const {
    const auto find = [](const auto& texts, absl::string_view name) -> std::optional<std::string> {
      const auto it = texts.find(std::string(name));
      if (it == texts.end()) return std::nullopt;
      return it->second;
    };
    return ParseCommand(
        args, {.cwd = "/",
               .ddprun_dir = "/nonexistent",
               .get_env = [&](absl::string_view name) { return find(env, name); },
               .read_file = [&](const std::string& path) -> absl::StatusOr<std::string> {
                 if (auto text = find(files, path)) return *std::move(text);
                 return absl::NotFoundError("No such file or directory");
               },
               .num_cpus = 6,
               .host_name = "node2",
               .count_gpus = [this](const auto& visible, bool) -> absl::StatusOr<int> {
                 if (!gpus.ok()) return gpus;
                 return static_cast<int>(VisibleGpus(visible, std::vector<std::string>(*gpus)).size());
               },
               .make_uuid = [] { return "uuid"; },
               .from_starter = from_starter});
  }
  // Parses `args`, followed by the program /bin/true.
  LaunchConfig Launch(std::vector<std::string> args) const {
    args.emplace_back("/bin/true");
    const auto command = Parse(args);
    EXPECT_TRUE(command.ok()) << command.status();
    if (!command.ok() || !std::holds_alternative<LaunchConfig>(*command)) {
      ADD_FAILURE() << "the command does not launch a job";
      return {};
    }
    return std::get<LaunchConfig>(*command);
  }
  std::string UsageError(const std::vector<std::string>& args) const {
    const auto command = Parse(args);
    EXPECT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument) << command.status();
    return std::string(command.status().message());
  }
};

// A task on the second of two nodes of Slurm.
inline Machine InSlurm() {
  Machine machine;
  machine.env = {{"SLURM_JOB_ID", "12"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_NODES", "2"},
                 {"SLURM_STEP_NODELIST", "node[1-2]"},
                 {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                 {"SLURM_NODEID", "1"},
                 {"SLURMD_NODENAME", "node2"}};
  return machine;
}

}  // namespace ddprun
