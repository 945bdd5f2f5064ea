#include "launcher/workers/worker_environment.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/exit_info.h"
#include "launcher/config/program.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {
namespace {

using EnvMap = std::map<std::string, std::string>;

constexpr char kCudaDevices[] = "CUDA_VISIBLE_DEVICES";
constexpr char kRocmDevices[] = "HIP_VISIBLE_DEVICES";
constexpr char kNoticeFile[] = "DDPRUN_NOTICE_FILE";
constexpr char kHeartbeatFile[] = "DDPRUN_HEARTBEAT_FILE";

// The devices visible to the workers.
struct VisibleDevices {
  std::string variable;  // the variable that lists them: ROCm's if it is not empty, otherwise CUDA's
  bool listed = false;   // false if the variable is not set: all devices are visible, as 0, 1, ...
  std::vector<std::string> entries;  // numbers or UUIDs, by local rank
};

VisibleDevices DevicesOf(const EnvMap& base) {
  VisibleDevices devices;
  const auto rocm = base.find(kRocmDevices);
  devices.variable = rocm != base.end() && !rocm->second.empty() ? kRocmDevices : kCudaDevices;
  if (const auto list = base.find(devices.variable); list != base.end()) {
    devices.listed = true;
    devices.entries = absl::StrSplit(list->second, ',');
  }
  return devices;
}

void NarrowToDevice(EnvMap& vars, LocalRank local_rank) {
  const VisibleDevices devices = DevicesOf(vars);
  const auto index = static_cast<size_t>(local_rank.value());
  const std::string device = devices.listed ? std::string(absl::StripAsciiWhitespace(devices.entries[index]))
                                            : absl::StrCat(local_rank.value());
  vars[kCudaDevices] = device;
  if (devices.variable == kRocmDevices) vars[kRocmDevices] = device;
}

std::string NamesOf(const std::vector<int>& signals) {
  return absl::StrJoin(signals, ",", [](std::string* out, int signo) { *out += SignalName(signo); });
}

// The place of worker `local_rank` in its round.
WorkerEnv PlaceOf(const LaunchConfig& config, const Assignment& assignment, LocalRank local_rank,
                  const WorkerPlaces& places) {
  return {.rank = Rank(assignment.first_rank.value() + local_rank.value()),
          .local_rank = local_rank,
          .group_rank = assignment.group_rank,
          .world_size = assignment.world_size,
          .local_world_size = config.num_local_workers,
          .group_world_size = assignment.group_world_size,
          .role_rank = assignment.first_role_rank + static_cast<int>(local_rank.value()),
          .role_world_size = assignment.role_world_size,
          .role_name = config.role,
          .virtual_local_rank = config.virtual_local_rank,
          .master_addr = assignment.master_addr,
          .master_port = assignment.master_port,
          .agent_store = config.agent_store,
          .restart_count = assignment.restart_count,
          .max_restarts = config.rules.max_restarts,
          .run_id = config.run_id,
          .error_file = places.error_file,
          .round = assignment.round,
          .agent_socket = places.agent_socket,
          .node_addr = config.max_nodes > 1 ? places.network.address : "",
          .lease = config.max_nodes > 1 ? config.rdzv.lease : Duration::zero()};
}

}  // namespace

EnvVars BaseEnvironment(const LaunchConfig& config) {
  EnvMap vars;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (const char* equals = std::strchr(*entry, '=')) {
      vars.emplace(std::string(*entry, equals - *entry), std::string(equals + 1));
    }
  }
  for (const auto& [name, value] : config.program_env) vars[name] = value;
  return {vars.begin(), vars.end()};
}

bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config) {
  return config.num_local_workers > 1 && EnvMap(base.begin(), base.end()).count("OMP_NUM_THREADS") == 0;
}

absl::Status CheckVirtualDevices(const EnvVars& base, const LaunchConfig& config) {
  if (!config.virtual_local_rank) return absl::OkStatus();
  const VisibleDevices devices = DevicesOf({base.begin(), base.end()});
  if (!devices.listed || devices.entries.size() >= static_cast<size_t>(config.num_local_workers)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--virtual-local-rank gives each worker its own device, but the number of devices in ",
      devices.variable, "=", absl::StrJoin(devices.entries, ","), " is ", devices.entries.size(), ", for ",
      config.num_local_workers, " workers: list more devices, or start fewer workers with --nproc-per-node"));
}

EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const WorkerPlaces& places) {
  EnvMap vars(base.begin(), base.end());
  // If this job was started inside another job, these variables may be inherited from the outer job.
  for (const char* const name : {"DDPRUN_LOCAL_RANK", "DDPRUN_AGENT_SOCKET", "DDPRUN_NODE_ADDR",
                                 "DDPRUN_LEASE_MS", kNoticeFile, kHeartbeatFile})
    vars.erase(name);
  if (LimitsOmpThreads(base, config)) vars.insert_or_assign("OMP_NUM_THREADS", std::string("1"));
  // With these variables set to 1, PyTorch ends a rank whose NCCL peer has died, instead of blocking forever. PyTorch
  // up to 2.1 reads the second variable. Neither variable affects a worker that does not use NCCL.
  vars.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  vars.emplace("NCCL_ASYNC_ERROR_HANDLING", "1");
  // By default, Gloo publishes the address that the host name resolves to; on many hosts this is a loopback
  // address.
  if (config.max_nodes > 1 && !places.network.interface.empty()) {
    vars.emplace("GLOO_SOCKET_IFNAME", places.network.interface);
  }
  // Read by PyTorch launchers that run inside a worker. torchrun also sets this variable.
  vars["TORCHELASTIC_SIGNALS_TO_HANDLE"] = NamesOf(config.signals_to_handle);
  if (!places.timer_file.empty()) vars["TORCHELASTIC_TIMER_FILE"] = places.timer_file;
  if (!places.notice_file.empty()) vars[kNoticeFile] = places.notice_file;
  if (!places.heartbeat_file.empty()) vars[kHeartbeatFile] = places.heartbeat_file;
  if (config.virtual_local_rank) NarrowToDevice(vars, local_rank);
  const WorkerEnv env = PlaceOf(config, assignment, local_rank, places);
  for (auto& [name, value] : EncodeWorkerEnv(env)) vars[name] = std::move(value);
  return {vars.begin(), vars.end()};
}

std::vector<int> SignalsIgnoredByWorkers(const LaunchConfig& config) {
  std::vector<int> ignored;
  for (const PreemptSignal& signal : config.preempt_signals) {
    if (signal.signo == SIGUSR1 || signal.signo == SIGUSR2) ignored.push_back(signal.signo);
  }
  return ignored;
}

std::optional<int> NoticeBehind(const ExitInfo& exit, const LaunchConfig& config) {
  const std::optional<int> signo = SignalBehind(exit);
  const bool notice = std::any_of(config.preempt_signals.begin(), config.preempt_signals.end(),
                                  [signo](const PreemptSignal& signal) { return signal.signo == signo; });
  return notice ? signo : std::nullopt;
}

RoundOffer OfferFor(const LaunchConfig& config, const Assignment& assignment, LocalRank local_rank,
                    const NodeNetwork& network) {
  const WorkerEnv place = PlaceOf(config, assignment, local_rank, {.network = network});
  return {.round = place.round,
          .rank = place.rank,
          .group_rank = place.group_rank,
          .world_size = place.world_size,
          .group_world_size = place.group_world_size,
          .role_rank = place.role_rank,
          .role_world_size = place.role_world_size,
          .restart_count = place.restart_count,
          .master_addr = place.master_addr,
          .master_port = place.master_port,
          .node_addr = place.node_addr,
          .lease = place.lease};
}

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
