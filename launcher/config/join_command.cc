#include "launcher/config/join_command.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace ddprun {
namespace {

// In quotes if a shell would see more in it than its letters.
std::string ShellWord(absl::string_view word) {
  const auto plain = [](char c) {
    return absl::ascii_isalnum(c) || absl::string_view("_-./:=,+@%").find(c) != absl::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace

std::string JoinCommand(const LaunchConfig& config, const Endpoint& coordinator) {
  std::string command = absl::StrCat(
      "ddprun --nnodes=", config.min_nodes, ":", config.max_nodes, " --max-restarts=", config.max_restarts,
      " --rdzv-backend=c10d --rdzv-endpoint=", ToString(coordinator), " --rdzv-id=", ShellWord(config.run_id),
      " --nproc-per-node=", config.num_local_workers);
  for (const std::string& word : config.program.typed) absl::StrAppend(&command, " ", ShellWord(word));
  return command;
}

}  // namespace ddprun
