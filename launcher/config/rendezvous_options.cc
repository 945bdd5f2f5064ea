#include <algorithm>
#include <climits>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

constexpr int kDefaultC10dPort = 29400;
constexpr int kDefaultStaticPort = 29500;

constexpr char kNotAFreePort[] =
    "a port other than 0: 0 means any free port, but other nodes could not find it";

// Returns the error for an option that gives an unspecified address to which other nodes would have to
// connect.
absl::Status Unreachable(const Options& options, absl::string_view name, absl::string_view host) {
  return BadValue(
      options, name,
      absl::StrCat("an address that nodes can connect to; ", host,
                   " is only an address to listen on: give the name or the address of the node that hosts "
                   "the coordinator, the same on all nodes"));
}

absl::Status CheckInterface(const Options& options, absl::string_view name, const std::string& host) {
  if (!LacksInterface(host)) return absl::OkStatus();
  return BadValue(options, name,
                  absl::StrCat("the interface of a link-local address, as in ", host,
                               "%eth0, where eth0 is an interface of this node"));
}

absl::StatusOr<int> MasterPort(const Options& options) {
  return WholeNumber(options, "master-port", 0, 65535, "a port from 0 to 65535");
}

// Checks --master-port and --node-rank even if they have no effect, as with --standalone, so that an empty or
// misspelt shell variable in a job script is reported.
absl::Status CheckNumbers(const Options& options) {
  if (options.IsGiven("master-port")) RETURN_IF_ERROR(MasterPort(options).status());
  if (!options.IsGiven("node-rank")) return absl::OkStatus();
  return WholeNumber(options, "node-rank", INT_MIN, INT_MAX, "a rank from 0 to nodes - 1").status();
}

absl::Status CheckBackend(const Options& options) {
  const std::string& backend = options.Get("rdzv-backend");
  if (backend == "static" || backend == "c10d" || IsEtcd(backend)) return absl::OkStatus();
  return BadValue(options, "rdzv-backend",
                  "static, c10d or etcd. Other names are Python plug-ins, which cannot be loaded here");
}

void UseOwnCoordinator(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  config.backend = Backend::kC10d;
  config.hosting = Hosting::kHere;
  config.run_id =
      options.IsGiven("rdzv-id") && !config.standalone ? options.Get("rdzv-id") : inputs.make_uuid();
}

absl::Status ReadStatic(const Options& options, LaunchConfig& config) {
  config.backend = Backend::kStatic;
  config.agent_store = true;
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
    ASSIGN_OR_RETURN(config.endpoint.host, ParseHost(options.Get("master-addr")),
                     options.Quote("master-addr"));
    config.endpoint.port = kDefaultStaticPort;
    if (options.IsGiven("master-port")) {
      ASSIGN_OR_RETURN(config.endpoint.port, MasterPort(options));
    }
  }
  const char* const place = options.IsSet("rdzv-endpoint") ? "rdzv-endpoint" : "master-addr";
  RETURN_IF_ERROR(CheckInterface(options, place, config.endpoint.host));
  if (config.hosting == Hosting::kElsewhere && IsUnspecifiedAddress(config.endpoint.host)) {
    return Unreachable(options, place, config.endpoint.host);
  }
  if (config.endpoint.port != 0 || config.max_nodes == 1) return absl::OkStatus();
  return BadValue(options, options.IsSet("rdzv-endpoint") ? "rdzv-endpoint" : "master-port", kNotAFreePort);
}

absl::Status ReadC10d(const Options& options, LaunchConfig& config) {
  config.backend = Backend::kC10d;
  config.endpoint = {.host = "localhost", .port = kDefaultC10dPort};
  if (options.IsGiven("node-rank")) {
    ASSIGN_OR_RETURN(config.node_rank,
                     WholeNumber(options, "node-rank", 0, config.max_nodes - 1,
                                 absl::StrCat("a rank from 0 to ", config.max_nodes - 1, " (nodes - 1)")));
  }
  if (absl::StrContains(options.Get("rdzv-endpoint"), ',')) {
    ASSIGN_OR_RETURN(config.endpoints, ParseAgentEndpoints(options.Get("rdzv-endpoint"), kDefaultC10dPort),
                     options.Quote("rdzv-endpoint"));
    config.endpoint = config.endpoints[0];
  } else if (options.IsSet("rdzv-endpoint")) {
    ASSIGN_OR_RETURN(config.endpoint, ParseEndpoint(options.Get("rdzv-endpoint"), kDefaultC10dPort),
                     options.Quote("rdzv-endpoint"));
  }
  if (config.rdzv.is_host && config.endpoints.size() > 1) {
    return BadValue(options, "rdzv-endpoint", "one endpoint, because --rdzv-conf=is_host is given");
  }
  if (config.rdzv.is_host) config.hosting = *config.rdzv.is_host ? Hosting::kHere : Hosting::kElsewhere;
  RETURN_IF_ERROR(CheckInterface(options, "rdzv-endpoint", config.endpoint.host));
  if (config.hosting != Hosting::kHere && IsUnspecifiedAddress(config.endpoint.host)) {
    return Unreachable(options, "rdzv-endpoint", config.endpoint.host);
  }
  if (config.endpoint.port == 0) {
    if (config.max_nodes > 1 || config.hosting == Hosting::kElsewhere) {
      return BadValue(options, "rdzv-endpoint", kNotAFreePort);
    }
    config.hosting = Hosting::kHere;
  }
  return absl::OkStatus();
}

absl::Status ReadEtcd(const Options& options, LaunchConfig& config) {
  config.backend = Backend::kEtcd;
  config.hosting = Hosting::kElsewhere;
  // The register remembers the end of each job, so the default "none" would serve once.
  if (!options.IsSet("rdzv-id") || options.Get("rdzv-id") == "none") {
    return BadValue(
        options, "rdzv-id",
        "a name of the job, a new one for each job; the register on etcd remembers how a job of that "
        "name has ended");
  }
  ASSIGN_OR_RETURN(config.etcd_endpoints, ParseEtcdEndpoints(options.Get("rdzv-endpoint")),
                   options.Quote("rdzv-endpoint"));
  config.endpoint = config.etcd_endpoints[0];
  if (options.IsGiven("node-rank")) {
    ASSIGN_OR_RETURN(config.node_rank,
                     WholeNumber(options, "node-rank", 0, config.max_nodes - 1,
                                 absl::StrCat("a rank from 0 to ", config.max_nodes - 1, " (nodes - 1)")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRendezvous(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  RETURN_IF_ERROR(CheckBackend(options));
  const bool wants_static = options.Get("rdzv-backend") == "static";
  const bool has_endpoint = options.IsSet("rdzv-endpoint") || options.IsSet("master-port");
  // As in torchrun, a single node without an endpoint needs no fixed port.
  const bool alone = options.IsSet("standalone") || (wants_static && !has_endpoint && config.max_nodes == 1);
  const bool alone_so_far = config.min_nodes < config.max_nodes && !has_endpoint &&
                            !options.IsGiven("rdzv-backend") && !options.IsGiven("node-rank") &&
                            !options.IsGiven("master-addr");
  // Several nodes with an endpoint but without ranks cannot be static: all of them would have the default
  // rank 0.
  const bool can_be_static = !options.IsSet("rdzv-endpoint") || config.max_nodes == 1 ||
                             options.IsGiven("node-rank") || options.IsGiven("master-addr") ||
                             options.IsSet("master-port");
  const bool is_static =
      !alone && !alone_so_far && wants_static && (can_be_static || options.IsGiven("rdzv-backend"));

  const bool is_etcd = IsEtcd(options.Get("rdzv-backend")) && !alone;
  const Backend backend = is_static ? Backend::kStatic : is_etcd ? Backend::kEtcd : Backend::kC10d;
  ASSIGN_OR_RETURN(config.rdzv, ParseRdzvConf(options.Get("rdzv-conf"), backend, config.warnings),
                   options.Quote("rdzv-conf"));
  ASSIGN_OR_RETURN(config.run_id, Name(options, "rdzv-id"));
  config.local_addr = options.Get("local-addr");
  if (config.max_nodes > 1 && IsUnspecifiedAddress(config.local_addr)) {
    return BadValue(options, "local-addr",
                    absl::StrCat("an address of this node that other nodes can connect to; ",
                                 config.local_addr, " is only an address to listen on"));
  }
  RETURN_IF_ERROR(CheckNumbers(options));

  // Ignored for static nodes, which always use the agent's store; see ReadStatic.
  config.agent_store = inputs.get_env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1";
  if (alone) {
    if (config.min_nodes > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--standalone is for one node, but ", options.Quote("nnodes"), " was given"));
    }
    config.max_nodes = 1;
    config.standalone = true;
    config.endpoint = {.host = "localhost", .port = 0};
    UseOwnCoordinator(options, inputs, config);
    return absl::OkStatus();
  }
  if (alone_so_far) {
    config.endpoint = {.host = config.local_addr, .port = 0};
    UseOwnCoordinator(options, inputs, config);
    return absl::OkStatus();
  }
  if (is_etcd) return ReadEtcd(options, config);
  return is_static ? ReadStatic(options, config) : ReadC10d(options, config);
}

absl::Status ReadQuorum(const Options& options, LaunchConfig& config) {
  constexpr int kMostEndpoints = 5;
  const bool can_vote = config.backend == Backend::kC10d && config.max_nodes > 1;
  // A job that needs all of its nodes, and can get no other, ends with the first one that is lost. Then all agents end at once.
  const bool needs_all = config.admission == Admission::kExpected && config.min_nodes == config.max_nodes;
  if ((!can_vote || needs_all) && !options.IsGiven("quorum")) config.rules.quorum = Quorum::kNone;
  const int endpoints = static_cast<int>(config.endpoints.size());
  if (endpoints > 1 && config.rules.quorum != Quorum::kVoters) {
    return BadValue(options, "rdzv-endpoint",
                    "one endpoint; several of them, at which the coordinator may be, need --quorum=voters");
  }
  if (endpoints > 1 && endpoints > std::min(config.max_nodes + 1, kMostEndpoints)) {
    return BadValue(options, "rdzv-endpoint",
                    absl::StrCat("at most ", kMostEndpoints, " endpoints, and at most one more than nodes (",
                                 config.max_nodes,
                                 "): an agent must run at each of them when the job starts, or `ddprun "
                                 "--store-only` at one of them"));
  }
  if (config.rules.quorum != Quorum::kVoters || config.max_nodes == 1 || can_vote) return absl::OkStatus();
  return BadValue(options, "quorum",
                  "voters only with --rdzv-backend=c10d: with etcd, the job outlives its coordinator anyway, "
                  "and with static, only the node with rank 0 can coordinate it");
}

}  // namespace ddprun
