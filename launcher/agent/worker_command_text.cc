#include "launcher/agent/worker_command_text.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/config/program.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {

std::string WorkerCommandText(const EnvVars& own, const EnvVars& worker, const std::vector<std::string>& argv,
                              const std::set<int>& cpus) {
  const std::map<std::string, std::string> before(own.begin(), own.end());
  const std::map<std::string, std::string> after(worker.begin(), worker.end());
  std::string text;
  if (!cpus.empty()) absl::StrAppend(&text, "taskset -c ", FormatCpuList(cpus), " ");
  absl::StrAppend(&text, "env");
  for (const auto& [name, value] : before) {
    if (after.count(name) == 0) absl::StrAppend(&text, " \\\n    -u ", ShellWord(name));
  }
  for (const auto& [name, value] : after) {
    const auto it = before.find(name);
    if (it == before.end() || it->second != value)
      absl::StrAppend(&text, " \\\n    ", ShellWord(absl::StrCat(name, "=", value)));
  }
  std::vector<std::string> words;
  for (const std::string& word : argv) words.push_back(ShellWord(word));
  absl::StrAppend(&text, " \\\n    ", absl::StrJoin(words, " "), "\n");
  return text;
}

}  // namespace ddprun
