#include "launcher/scheduler/host_file_task.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "launcher/scheduler/variables.h"

namespace ddprun {
namespace {

constexpr size_t kMaxNamedHosts = 4;  // in a message

// What differs between the schedulers.
struct Task {
  const char* scheduler;
  std::string id;
  const char* id_variable;
  const char* file_variable;
  const char* no_file;  // why the file may be missing, and what to write
  // The index of the line of the file that this task is for, and how to start one task on each host; empty: not known.
  const char* line_variable;
  const char* once;
};

absl::string_view ShortName(absl::string_view host) { return host.substr(0, host.find('.')); }

// Returns the index of the host named `self`, by its full name or else by its short name; nullopt if it is not found, or if
// several hosts have its short name.
std::optional<int> IndexOf(const std::vector<std::string>& hosts, absl::string_view self) {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (absl::EqualsIgnoreCase(hosts[i], self)) return static_cast<int>(i);
  }
  std::optional<int> found;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!absl::EqualsIgnoreCase(ShortName(hosts[i]), ShortName(self))) continue;
    if (found) return std::nullopt;
    found = static_cast<int>(i);
  }
  return found;
}

// "node1, node2, node3, node4 and 12 more"
std::string Named(const std::vector<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), kMaxNamedHosts);
  return absl::StrCat(absl::StrJoin(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                      named < hosts.size() ? absl::StrCat(" and ", hosts.size() - named, " more") : "");
}

// Returns an error if this task is not the first one on its host. `lines` are those of the file.
absl::Status OnePerNode(const GetEnv& get_env, const Task& task, const std::vector<std::string>& lines,
                        const std::string& self) {
  int line = 0;
  const std::string text = ValueOf(get_env, task.line_variable);
  if (!absl::SimpleAtoi(text, &line) || line < 0 || line >= static_cast<int>(lines.size())) {
    return absl::OkStatus();
  }
  if (lines[static_cast<size_t>(line)] != self) return absl::OkStatus();  // another numbering
  if (std::find(lines.begin(), lines.begin() + line, self) == lines.begin() + line) return absl::OkStatus();
  return BadVariable(task.line_variable, text, task.scheduler, " starts ddprun more than once on ", self,
                     ", but ddprun starts the workers of a node itself: ", task.once,
                     ", and give ddprun the number of workers with --nproc-per-node");
}

absl::StatusOr<std::optional<ScheduledJob>> ReadTask(const GetEnv& get_env, const ReadFile& read_file,
                                                     const std::string& self, const Task& task) {
  const std::string path = ValueOf(get_env, task.file_variable);
  if (path.empty()) return BadVariable(task.file_variable, path, "expected the path of a file", task.no_file);
  const absl::StatusOr<std::string> text = read_file(path);
  if (!text.ok()) return BadVariable(task.file_variable, path, text.status().message(), task.no_file);

  ScheduledJob found = {.scheduler = task.scheduler,
                        .id = task.id,
                        .id_variable = task.id_variable,
                        .hosts_variable = task.file_variable,
                        .node_variable = task.file_variable};
  const std::vector<std::string> lines = absl::StrSplit(*text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  for (const std::string& host : lines) {
    if (std::find(found.hosts.begin(), found.hosts.end(), host) == found.hosts.end())
      found.hosts.push_back(host);
  }
  if (found.hosts.empty())
    return BadVariable(task.file_variable, path, "the file has no hosts", task.no_file);
  const std::optional<int> node = IndexOf(found.hosts, self);
  if (!node) {
    return BadVariable(task.file_variable, path, "the file does not contain this host, ", self, ", but ",
                       Named(found.hosts),
                       ": start ddprun on hosts of the job only, or give --nnodes and --rdzv-endpoint");
  }
  found.node = *node;
  found.first_host = {found.hosts[0]};
  // In some clusters only one form of a name resolves.
  if (const absl::string_view name = ShortName(found.hosts[0]); name != found.hosts[0]) {
    found.first_host.emplace_back(name);
  }
  found.size.push_back({"nnodes", absl::StrCat(found.hosts.size()), task.file_variable});
  found.one_per_node = OnePerNode(get_env, task, lines, found.hosts[static_cast<size_t>(*node)]);
  return found;
}

}  // namespace

absl::StatusOr<std::optional<ScheduledJob>> FindPbsTask(const GetEnv& get_env, const ReadFile& read_file,
                                                        const std::string& host) {
  const std::string job = ValueOf(get_env, "PBS_JOBID"), task = ValueOf(get_env, "PBS_TASKNUM"),
                    node = ValueOf(get_env, "PBS_NODENUM");
  // A plug-in of Slurm sets variables of PBS for old job scripts.
  if (job.empty() || !ValueOf(get_env, "SLURM_JOB_ID").empty()) return std::nullopt;
  const bool is_script = task == "1" && (node.empty() || node == "0");
  const bool is_unknown = task.empty() && ValueOf(get_env, "PBS_NODEFILE").empty();
  if (is_script || is_unknown) return std::nullopt;
  return ReadTask(
      get_env, read_file, host,
      {.scheduler = kPbsName,
       .id = job,
       .id_variable = "PBS_JOBID",
       .file_variable = "PBS_NODEFILE",
       .no_file = ": PBS writes this file on the first host only: copy it to a folder that all hosts "
                  "share, and write pbsdsh -- env PBS_NODEFILE=COPY ddprun, or give --nnodes and "
                  "--rdzv-endpoint",
       .line_variable = "PBS_VNODENUM",
       .once = "write pbsdsh -u, or request one process for each host (mpiprocs=1)"});
}

absl::StatusOr<std::optional<ScheduledJob>> FindLsfTask(const GetEnv& get_env, const ReadFile& read_file,
                                                        const std::string& host) {
  const std::string job = ValueOf(get_env, "LSB_JOBID"), index = ValueOf(get_env, "LSB_JOBINDEX");
  if (job.empty() || ValueOf(get_env, "LSF_PM_TASKID").empty()) return std::nullopt;
  return ReadTask(
      get_env, read_file, host,
      {.scheduler = kLsfName,
       .id = absl::StrCat(job, index.empty() || index == "0" ? "" : absl::StrCat(".", index)),
       .id_variable = "LSB_JOBID",
       .file_variable = "LSB_DJOB_HOSTFILE",
       .no_file = ": start ddprun with blaunch in a job of LSF, or give --nnodes and --rdzv-endpoint",
       .line_variable = "",
       .once = ""});
}

}  // namespace ddprun
