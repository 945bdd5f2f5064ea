#include "launcher/config/launch_config.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/config/gpu_count.h"
#include "launcher/config/host_list.h"
#include "launcher/config/option_values.h"

namespace ddprun {
namespace {

constexpr int kMaxNodes = 1 << 20;
constexpr int kMaxLocalWorkers = 1 << 14;
constexpr int kDefaultC10dPort = 29400;
constexpr int kDefaultStaticPort = 29500;

absl::Status ReadNodes(const Options& options, LaunchConfig& config) {
  const auto bad = [&] {
    return BadValue(options, "nnodes", "N or MIN:MAX with 0 < MIN <= MAX, such as 2 or 1:4");
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(options.Get("nnodes"), ':');
  if (parts.size() > 2) return bad();
  if (!absl::SimpleAtoi(parts.front(), &config.min_nodes) ||
      !absl::SimpleAtoi(parts.back(), &config.max_nodes)) {
    return bad();
  }
  if (config.min_nodes < 1 || config.max_nodes < config.min_nodes || config.max_nodes > kMaxNodes)
    return bad();
  return absl::OkStatus();
}

absl::Status ReadLocalWorkers(const Options& options, const Surroundings& surroundings,
                              LaunchConfig& config) {
  const std::string& text = options.Get("nproc-per-node");
  if (text == "cpu") {
    config.num_local_workers = surroundings.num_cpus;
  } else if (text == "auto") {
    config.num_local_workers = surroundings.count_gpus().value_or(surroundings.num_cpus);
  } else if (text == "gpu") {
    ASSIGN_OR_RETURN(config.num_local_workers, surroundings.count_gpus(), options.Quote("nproc-per-node"));
  } else {
    ASSIGN_OR_RETURN(
        config.num_local_workers,
        WholeNumber(options, "nproc-per-node", 1, kMaxLocalWorkers,
                    absl::StrCat("a number from 1 to ", kMaxLocalWorkers, ", auto, gpu or cpu")));
  }
  return absl::OkStatus();
}

void UseOwnCoordinator(const Options& options, const Surroundings& surroundings, LaunchConfig& config) {
  config.backend = Backend::kC10d;
  config.hosting = Hosting::kHere;
  config.run_id =
      options.IsGiven("rdzv-id") && !config.standalone ? options.Get("rdzv-id") : surroundings.make_uuid();
}

absl::Status ReadStatic(const Options& options, LaunchConfig& config) {
  config.backend = Backend::kStatic;
  config.min_nodes = config.max_nodes;
  if (config.rdzv.timeout) config.rdzv.join_timeout = *config.rdzv.timeout;
  ASSIGN_OR_RETURN(config.node_rank,
                   WholeNumber(options, "node-rank", 0, config.max_nodes - 1,
                               absl::StrCat("a rank from 0 to ", config.max_nodes - 1, " (nodes - 1)")));
  config.hosting = config.node_rank == 0 ? Hosting::kHere : Hosting::kElsewhere;
  if (options.IsSet("rdzv-endpoint")) {
    ASSIGN_OR_RETURN(config.endpoint, ParseEndpoint(options.Get("rdzv-endpoint"), -1),
                     options.Quote("rdzv-endpoint"));
  } else {
    ASSIGN_OR_RETURN(config.endpoint, ParseEndpoint(options.Get("master-addr"), kDefaultStaticPort),
                     options.Quote("master-addr"));
    if (options.IsSet("master-port")) {
      ASSIGN_OR_RETURN(config.endpoint.port,
                       WholeNumber(options, "master-port", 0, 65535, "a port from 0 to 65535"));
    }
  }
  if (config.endpoint.port == 0 && config.max_nodes > 1) {
    return absl::InvalidArgumentError("port 0 (a free one) is for one node: the others could not find it");
  }
  return absl::OkStatus();
}

absl::Status ReadC10d(const Options& options, LaunchConfig& config) {
  config.backend = Backend::kC10d;
  config.endpoint = {.host = "localhost", .port = kDefaultC10dPort};
  if (options.IsGiven("node-rank")) {
    ASSIGN_OR_RETURN(config.node_rank,
                     WholeNumber(options, "node-rank", 0, config.max_nodes - 1,
                                 absl::StrCat("a rank from 0 to ", config.max_nodes - 1, " (nodes - 1)")));
  }
  if (options.IsSet("rdzv-endpoint")) {
    ASSIGN_OR_RETURN(config.endpoint, ParseEndpoint(options.Get("rdzv-endpoint"), kDefaultC10dPort),
                     options.Quote("rdzv-endpoint"));
  }
  if (config.rdzv.is_host) config.hosting = *config.rdzv.is_host ? Hosting::kHere : Hosting::kElsewhere;
  if (config.endpoint.port == 0) {
    if (config.max_nodes > 1 || config.hosting == Hosting::kElsewhere) {
      return BadValue(options, "rdzv-endpoint",
                      "a port: a free one (0) is for one node, the others could not find it");
    }
    config.hosting = Hosting::kHere;
  }
  return absl::OkStatus();
}

absl::Status ReadRendezvous(const Options& options, const Surroundings& surroundings, LaunchConfig& config) {
  ASSIGN_OR_RETURN(config.rdzv, ParseRdzvConf(options.Get("rdzv-conf"), config.warnings),
                   options.Quote("rdzv-conf"));
  config.run_id = options.Get("rdzv-id");
  config.local_addr = options.Get("local-addr");
  if (config.run_id.empty()) return BadValue(options, "rdzv-id", "a name");
  const std::string& backend = options.Get("rdzv-backend");
  if (backend != "static" && backend != "c10d") return BadValue(options, "rdzv-backend", "static or c10d");

  const bool has_place = options.IsSet("rdzv-endpoint") || options.IsSet("master-port");
  if (options.IsSet("standalone") || (backend == "static" && !has_place && config.max_nodes == 1)) {
    // torchrun's own rule too: one node that names no place needs no fixed port.
    if (config.min_nodes > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--standalone is for one node, but ", options.Quote("nnodes"), " was given"));
    }
    config.max_nodes = 1;
    config.standalone = true;
    config.endpoint = {.host = "localhost", .port = 0};
    UseOwnCoordinator(options, surroundings, config);
    return absl::OkStatus();
  }
  const bool alone_so_far = config.min_nodes < config.max_nodes && !has_place &&
                            !options.IsGiven("rdzv-backend") && !options.IsGiven("node-rank") &&
                            !options.IsGiven("master-addr");
  if (alone_so_far) {
    config.endpoint = {.host = config.local_addr, .port = 0};
    UseOwnCoordinator(options, surroundings, config);
    return absl::OkStatus();
  }
  // Nodes that are given a place to meet but no rank cannot be static: torchrun would give all of them rank
  // 0.
  const bool can_be_static = !options.IsSet("rdzv-endpoint") || config.max_nodes == 1 ||
                             options.IsGiven("node-rank") || options.IsGiven("master-addr") ||
                             options.IsSet("master-port");
  if (backend == "static" && (can_be_static || options.IsGiven("rdzv-backend")))
    return ReadStatic(options, config);
  return ReadC10d(options, config);
}

absl::Status ReadShutdownTimeout(const Options& options, const Surroundings& surroundings,
                                 LaunchConfig& config) {
  constexpr char kVariable[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  constexpr char kWant[] = "whole seconds, 0 or more";
  int number = 30;
  if (options.IsSet("shutdown-timeout")) {
    ASSIGN_OR_RETURN(number, WholeNumber(options, "shutdown-timeout", 0, INT_MAX, kWant));
  } else if (const auto text = surroundings.get_env(kVariable); text && !text->empty()) {
    if (!absl::SimpleAtoi(*text, &number) || number < 0) {
      return absl::InvalidArgumentError(absl::StrCat(kVariable, "=", *text, ": expected ", kWant));
    }
  }
  config.shutdown_timeout = seconds(number);
  return absl::OkStatus();
}

absl::Status ReadOutput(const Options& options, LaunchConfig& config) {
  ASSIGN_OR_RETURN(config.redirects, StreamChoice::Parse(options.Get("redirects")),
                   options.Quote("redirects"));
  ASSIGN_OR_RETURN(config.tee, StreamChoice::Parse(options.Get("tee")), options.Quote("tee"));
  config.log_dir = options.Get("log-dir");
  struct stat info;
  if (config.log_dir != "/dev/null" && stat(config.log_dir.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
    return BadValue(options, "log-dir", "a directory, this is a file");
  }
  return absl::OkStatus();
}

absl::Status ReadExitCodes(const Options& options, LaunchConfig& config) {
  const std::string& text = options.Get("exit-codes");
  if (text != "torchrun" && text != "scheduler")
    return BadValue(options, "exit-codes", "torchrun or scheduler");
  config.exit_codes = text == "torchrun" ? ExitCodes::kTorchrun : ExitCodes::kScheduler;
  return absl::OkStatus();
}

// The hosts of a Slurm step, or of the allocation outside of a step. A list longer than the job may grow has
// hosts that nobody shall wait for.
void ReadExpectedHosts(const Surroundings& surroundings, LaunchConfig& config) {
  for (const char* const name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const std::optional<std::string> text = surroundings.get_env(name);
    if (!text || text->empty()) continue;
    absl::StatusOr<std::vector<std::string>> hosts = ExpandHostList(*text);
    if (!hosts.ok()) {
      config.warnings.push_back(absl::StrCat(name, " is ignored: ", std::string(hosts.status().message())));
    } else if (hosts->size() > 1 && hosts->size() <= static_cast<size_t>(config.max_nodes)) {
      for (std::string& host : *hosts) host.resize(std::min(host.find('.'), host.size()));
      config.expected_hosts = *std::move(hosts);
    }
    return;
  }
}

absl::StatusOr<Command> ReadStore(const Options& options) {
  if (!options.program().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--store-only runs no program, but ", options.program()[0], " was given"));
  }
  if (options.Get("host").empty()) return BadValue(options, "host", "a host name or address");
  StoreConfig store = {.host = options.Get("host")};
  ASSIGN_OR_RETURN(store.port, WholeNumber(options, "port", 0, 65535, "a port from 0 to 65535"));
  return store;
}

}  // namespace

absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& args, const Surroundings& surroundings) {
  ASSIGN_OR_RETURN(const Options options, ParseOptions(args, surroundings.get_env));
  if (options.IsSet("help")) return ShowHelp{};
  if (options.IsSet("version")) return ShowVersion{};
  if (options.IsSet("store-only")) return ReadStore(options);
  for (const char* name : {"host", "port"}) {
    if (options.IsGiven(name)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " goes with --store-only"));
    }
  }
  LaunchConfig config;
  RETURN_IF_ERROR(ReadNodes(options, config));
  RETURN_IF_ERROR(ReadRendezvous(options, surroundings, config));
  ASSIGN_OR_RETURN(config.max_restarts,
                   WholeNumber(options, "max-restarts", 0, INT_MAX, "a whole number, 0 or more"));
  double interval;
  if (!absl::SimpleAtod(options.Get("monitor-interval"), &interval) || !(interval > 0)) {
    return BadValue(options, "monitor-interval", "seconds, more than 0");
  }
  RETURN_IF_ERROR(ReadShutdownTimeout(options, surroundings, config));
  RETURN_IF_ERROR(ReadOutput(options, config));
  ASSIGN_OR_RETURN(config.rules, ReadElasticRules(options, config.min_nodes, config.max_nodes));
  RETURN_IF_ERROR(ReadExitCodes(options, config));
  ReadExpectedHosts(surroundings, config);
  config.role = options.Get("role");
  if (config.role.empty()) return BadValue(options, "role", "a name");
  if (options.IsSet("module") && options.IsSet("no-python")) {
    return absl::InvalidArgumentError("--module and --no-python exclude each other");
  }
  if (options.program().empty()) {
    return absl::InvalidArgumentError("no program given: ddprun [options] PROGRAM [its arguments]");
  }
  // Last what looks at the machine: usage errors come first.
  RETURN_IF_ERROR(ReadLocalWorkers(options, surroundings, config));
  const ProgramKind kind = options.IsSet("module")      ? ProgramKind::kModule
                           : options.IsSet("no-python") ? ProgramKind::kNoPython
                                                        : ProgramKind::kAuto;
  ASSIGN_OR_RETURN(config.program, FindProgram(options.program(), kind,
                                               {.cwd = surroundings.cwd,
                                                .ddprun_dir = surroundings.ddprun_dir,
                                                .get_env = surroundings.get_env}));
  return config;
}

Surroundings RealSurroundings() {
  Surroundings real;
  std::error_code ignored;
  real.cwd = std::filesystem::current_path(ignored).string();
  real.ddprun_dir = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
  real.get_env = [](absl::string_view name) -> std::optional<std::string> {
    const char* value = getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  cpu_set_t cpus;
  real.num_cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0
                      ? CPU_COUNT(&cpus)
                      : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  real.count_gpus = [get_env = real.get_env] { return CountGpus(get_env("CUDA_VISIBLE_DEVICES")); };
  real.make_uuid = [] {
    // Version 4: all random but for the bits that say so.
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) abort();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const std::string hex =
        absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), sizeof bytes));
    return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                        hex.substr(16, 4), "-", hex.substr(20));
  };
  return real;
}

}  // namespace ddprun
