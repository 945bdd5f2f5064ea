// Parses command lines from arbitrary arguments, environment variables and configuration files.
//
// The input is a list of strings, each terminated by a zero byte or by the end of the input. A string that
// begins with byte 1 is an environment variable NAME=VALUE. A string that begins with byte 2 is the contents
// of every file that is read. All other strings are arguments.
//
// Invariants: no crash or hang; parsing is deterministic; an error has one of ParseCommand's three codes and
// a message of bounded size; the values of a parsed command are valid.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/option_table.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/process_inputs.h"

namespace ddprun {
namespace {

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

struct Input {
  std::vector<std::string> args;
  std::map<std::string, std::string> env;
  std::string file;
};

Input Split(absl::string_view bytes) {
  Input input;
  for (const absl::string_view text : absl::StrSplit(bytes, '\0')) {
    if (text.empty() || (text[0] != 1 && text[0] != 2)) {
      input.args.emplace_back(text);
    } else if (text[0] == 2) {
      input.file = std::string(text.substr(1));
    } else {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(text.substr(1), absl::MaxSplits('=', 1));
      input.env[std::string(parts.first)] = std::string(parts.second);
    }
  }
  return input;
}

absl::StatusOr<Command> Parse(const Input& input) {
  return ParseCommand(
      input.args, {.cwd = "/",
                   .ddprun_dir = "/nonexistent",
                   .get_env = [&](absl::string_view name) -> std::optional<std::string> {
                     const auto it = input.env.find(std::string(name));
                     if (it == input.env.end()) return std::nullopt;
                     return it->second;
                   },
                   .read_file = [&](const std::string&) -> absl::StatusOr<std::string> { return input.file; },
                   .num_cpus = 6,
                   .host_name = "node1",
                   .count_gpus = [](const auto&, bool) -> absl::StatusOr<int> { return 2; },
                   .make_uuid = [] { return "uuid"; }});
}

void CheckLaunch(const LaunchConfig& config) {
  Check(1 <= config.min_nodes && config.min_nodes <= config.max_nodes, "0 < MIN <= MAX");
  Check(config.num_local_workers >= 1, "there is at least one worker");
  Check(!config.program.argv.empty(), "there is a program");
  Check(!config.run_id.empty() && !config.role.empty(), "job and role have names");
  Check(config.endpoint.port >= 0 && config.endpoint.port <= 65535, "the port is valid");
  Check(config.endpoint.port > 0 || config.hosting == Hosting::kHere, "port 0 is only allowed on this node");
  Check(config.backend != Backend::kStatic || config.node_rank.has_value(), "static nodes have ranks");
  Check(!config.node_rank || (*config.node_rank >= 0 && *config.node_rank < config.max_nodes),
        "the node rank is valid");
  Check(config.rules.max_restarts >= 0 && config.max_log_bytes >= 0, "no count is negative");
  Check(config.shutdown_timeout >= Duration::zero(), "no duration is negative");
  for (const auto& [name, value] : config.program_env) {
    Check(!name.empty() && name.find('=') == std::string::npos, "a variable has a name");
    Check(value.find('\0') == std::string::npos, "a variable's value has no zero byte");
  }
}

std::string Describe(const absl::StatusOr<Command>& command) {
  if (!command.ok()) return command.status().ToString();
  std::string out = absl::StrCat(command->index());
  if (const auto* config = std::get_if<LaunchConfig>(&*command)) {
    absl::StrAppend(&out, absl::StrJoin(config->program.argv, " "), absl::StrJoin(config->warnings, "\n"),
                    config->num_local_workers, config->role, config->line_prefix_template);
  }
  return out;
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const Input input = Split(absl::string_view(reinterpret_cast<const char*>(data), size));
  const absl::StatusOr<Command> command = Parse(input);
  Check(Describe(command) == Describe(Parse(input)), "parsing is deterministic");
  if (command.ok()) {
    if (const auto* config = std::get_if<LaunchConfig>(&*command)) CheckLaunch(*config);
    return 0;
  }
  Check(absl::IsInvalidArgument(command.status()) || absl::IsNotFound(command.status()) ||
            absl::IsFailedPrecondition(command.status()),
        "an error has one of ParseCommand's codes");
  Check(!command.status().message().empty(), "an error has a message");
  // The message may quote the input twice and list the options that match an abbreviation.
  Check(command.status().message().size() < 4 * size + 4096, "an error is bounded by the size of its input");
  return 0;
}
