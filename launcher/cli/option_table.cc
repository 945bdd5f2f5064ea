#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

constexpr char kSize[] = "Size of the job";
constexpr char kRendezvous[] = "Rendezvous";
constexpr char kWorkers[] = "Workers";
constexpr char kFailures[] = "Failures and shutdown";
constexpr char kOutput[] = "Worker output";
constexpr char kObservers[] = "Events, metrics and recording";
constexpr char kSetup[] = "Configuration file and dry run";
constexpr char kStore[] = "Store without a job";
constexpr char kAbout[] = "Information";

constexpr OptionSpec kOptions[] = {
    {.section = kSize,
     .name = "nnodes",
     .value = "N|MIN:MAX",
     .fallback = "1:1",
     .help = "Number of nodes, or the allowed range. 1:4 starts with this node alone and grows as others "
             "join."},
    {.section = kSize,
     .name = "nproc-per-node",
     .value = "N|auto|gpu|cpu",
     .fallback = "1",
     .help = "Number of workers on this node. gpu: one per GPU; cpu: one per CPU; auto: gpu if there are "
             "GPUs, else cpu."},
    {.section = kSize,
     .name = "scale-up",
     .value = "immediate|at-snapshot|never",
     .fallback = "immediate",
     .help = "When nodes that join a running job are admitted. immediate: after the last call "
             "(last_call_timeout); at-snapshot: then at a snapshot requested from the workers; never: only "
             "when a round ends for another reason.",
     .torchruns = false},
    {.section = kSize,
     .name = "snapshot-timeout",
     .value = "SECONDS",
     .fallback = "60",
     .help = "How long to wait for a requested snapshot.",
     .torchruns = false},
    {.section = kSize,
     .name = "node-unit",
     .value = "K",
     .fallback = "1",
     .help = "The number of nodes in a round is a multiple of K.",
     .torchruns = false},

    {.section = kRendezvous,
     .name = "rdzv-backend",
     .value = "static|c10d",
     .fallback = "static",
     .help = "static: a fixed set of nodes with --node-rank. c10d: nodes may join and leave within "
             "--nnodes; the default for several nodes if --rdzv-endpoint is given without --node-rank."},
    {.section = kRendezvous,
     .name = "rdzv-endpoint",
     .value = "HOST[:PORT]",
     .help = "Address of the coordinator (default port 29400). The coordinator runs on the node with that "
             "address."},
    {.section = kRendezvous,
     .name = "rdzv-id",
     .value = "ID",
     .fallback = "none",
     .help = "Name of the job. Must be the same on all nodes."},
    {.section = kRendezvous,
     .name = "rdzv-conf",
     .value = "KEY=VALUE,...",
     .help = "Rendezvous settings. In whole seconds: join_timeout=600 (called timeout with static), "
             "last_call_timeout=30, read_timeout=60. In milliseconds: lease_ms=5000, after which a silent "
             "node counts as lost. is_host=true|false: whether this node hosts the coordinator. "
             "close_timeout, heartbeat_timeout, keep_alive_interval and keep_alive_max_attempt are accepted "
             "for compatibility.",
     .list = ListForm::kCommas},
    {.section = kRendezvous,
     .name = "standalone",
     .help = "Run on this node only, with its own coordinator on a free port."},
    {.section = kRendezvous,
     .name = "node-rank",
     .value = "RANK",
     .fallback = "0",
     .help = "Rank of this node, 0..N-1. With c10d, nodes that give a rank are ordered by it."},
    {.section = kRendezvous,
     .name = "master-addr",
     .value = "HOST",
     .fallback = "127.0.0.1",
     .help = "Host of node rank 0 (static only)."},
    {.section = kRendezvous,
     .name = "master-port",
     .value = "PORT",
     .help = "Port on that host (static only; default 29500 if one is needed)."},
    {.section = kRendezvous,
     .name = "local-addr",
     .value = "HOST",
     .help = "Address or name by which the other nodes reach this node, or a network interface, whose first "
             "address is used. Default: the address from which this node reaches the coordinator."},

    {.section = kWorkers,
     .name = "module",
     .letter = 'm',
     .help = "PROGRAM is a Python module, run with python -m."},
    {.section = kWorkers,
     .name = "no-python",
     .help = "PROGRAM is an executable, given by path or found on PATH; never run with Python."},
    {.section = kWorkers,
     .name = "run-path",
     .help = "PROGRAM is a Python script, run by runpy.run_path. Uncaught exceptions are reported even if "
             "the script does not use @record. Takes precedence over --no-python and --module."},
    {.section = kWorkers,
     .name = "start-method",
     .value = "spawn|fork|forkserver",
     .fallback = "spawn",
     .help = "Accepted for compatibility and ignored: workers are always new processes."},
    {.section = kWorkers,
     .name = "role",
     .value = "NAME",
     .fallback = "default",
     .help = "Role of the workers of this node."},
    {.section = kWorkers,
     .name = "virtual-local-rank",
     .help = "Each worker sees only its own GPU (CUDA_VISIBLE_DEVICES) and gets LOCAL_RANK=0."},
    {.section = kWorkers,
     .name = "numa-binding",
     .value = "node|socket|exclusive|core-complex",
     .help =
         "Bind each worker to CPUs near the GPU with its local rank: all CPUs of the GPU's NUMA node, all "
         "CPUs of the socket, an exclusive share of the node's cores, or one group of cores that share a "
         "cache. Default: no binding.",
     .given_by = GivenBy::kFile},
    {.section = kWorkers,
     .name = "pass-local-rank",
     .help = "Pass --local-rank=N as the first argument of PROGRAM, as python -m torch.distributed.launch "
             "does.",
     .torchruns = false},
    {.section = kWorkers,
     .name = "use-env",
     .help = "Do not pass --local-rank; workers read LOCAL_RANK. The default; overrides "
             "--pass-local-rank.",
     .given_by = GivenBy::kFile},

    {.section = kFailures,
     .name = "max-restarts",
     .value = "N",
     .fallback = "0",
     .help = "Maximum number of times the workers are restarted after a failure."},
    {.section = kFailures,
     .name = "max-restarts-without-progress",
     .value = "N",
     .fallback = "3",
     .help = "After N consecutive restarts without a new training step, the next failure ends the job. "
             "Applies to workers that report their steps. 0: no limit.",
     .torchruns = false},
    {.section = kFailures,
     .name = "exclude-after",
     .value = "N",
     .fallback = "0",
     .help = "Exclude a host from later rounds once N failures have started there, in its workers or its "
             "agent, unless fewer than the minimum number of nodes would remain. 0: disabled.",
     .torchruns = false},
    {.section = kFailures,
     .name = "quorum",
     .value = "none|majority",
     .fallback = "none",
     .help = "Which group of nodes may continue after losing contact with the rest. none: any group with at "
             "least the minimum number of nodes; majority: only a group that also has at least half of the "
             "nodes of the last round.",
     .torchruns = false},
    {.section = kFailures,
     .name = "min-uptime",
     .value = "SECONDS",
     .fallback = "0",
     .help = "A worker that fails within this time after its start, and before its first step, ends the job. "
             "0: disabled.",
     .torchruns = false},
    {.section = kFailures,
     .name = "monitor-interval",
     .value = "SECONDS",
     .fallback = "0.1",
     .help = "Accepted for compatibility and ignored: workers are monitored without polling."},
    {.section = kFailures,
     .name = "signals-to-handle",
     .value = "NAME,...",
     .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .help = "Signals that end this launcher's part in the job. They are forwarded to the workers.",
     .list = ListForm::kCommas},
    {.section = kFailures,
     .name = "shutdown-timeout",
     .value = "SECONDS",
     .help = "Time between the first signal and SIGKILL when workers are stopped. Default: "
             "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30."},
    {.section = kFailures,
     .name = "exit-codes",
     .value = "torchrun|scheduler",
     .fallback = "torchrun",
     .help = "torchrun: 0 for success, 1 for every failure. scheduler: also 75 for failures that another run "
             "may avoid; see below.",
     .torchruns = false},

    {.section = kOutput,
     .name = "log-dir",
     .value = "DIR",
     .help =
         "Base directory for log and error files. Default: a new directory under the temporary directory. "
         "/dev/null: no files."},
    {.section = kOutput,
     .name = "redirects",
     .letter = 'r',
     .value = "D|RANK:D,...",
     .fallback = "0",
     .help = "Streams that are written to files instead of the console: 0 none, 1 stdout, 2 stderr, 3 both; "
             "for all local ranks or for those listed.",
     .list = ListForm::kCommas},
    {.section = kOutput,
     .name = "tee",
     .letter = 't',
     .value = "D|RANK:D,...",
     .fallback = "0",
     .help = "Streams that are written to files and, with a prefix on each line, to the console.",
     .list = ListForm::kCommas},
    {.section = kOutput,
     .name = "log-line-prefix-template",
     .value = "TEXT",
     .help = "Prefix of lines that --tee writes to the console; ${role_name}, ${local_rank}, ${rank} and "
             "${hostname} are replaced. Default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else "
             "[${role_name}${local_rank}]:"},
    {.section = kOutput,
     .name = "local-ranks-filter",
     .value = "RANK,...",
     .help = "Show only the output of these local ranks on the console. Files are not affected.",
     .list = ListForm::kCommas},
    {.section = kOutput,
     .name = "duplicate-stdout-filters",
     .value = "TEXT,...",
     .help = "Also write stdout lines that --tee copies and that contain one of these texts to "
             "filtered_stdout.log. Write "
             "a comma as ,, (two commas).",
     .list = ListForm::kEscaped},
    {.section = kOutput,
     .name = "duplicate-stderr-filters",
     .value = "TEXT,...",
     .help = "The same for stderr and filtered_stderr.log.",
     .list = ListForm::kEscaped},
    {.section = kOutput,
     .name = "log-max-size",
     .value = "SIZE",
     .help = "Maximum bytes on disk for each stream of each worker, such as 500M or 2G; the oldest lines are "
             "dropped. Default: no limit.",
     .torchruns = false},
    {.section = kOutput,
     .name = "logs-specs",
     .value = "default",
     .help = "Accepted for compatibility. torchrun's Python plug-ins are not supported.",
     .given_by = GivenBy::kFile},

    {.section = kObservers,
     .name = "event-log-handler",
     .value = "null|console",
     .fallback = "null",
     .help = "console: write the job's events to stderr, one JSON object per line, as torchrun does."},
    {.section = kObservers,
     .name = "metrics-handler",
     .value = "null|console",
     .fallback = "null",
     .help = "console: write torchrun's metrics to stderr, in the format of its console handler.",
     .torchruns = false},
    {.section = kObservers,
     .name = "record",
     .value = "FILE",
     .help = "Record all inputs of the coordinator, if this node hosts it, so that its decisions can be "
             "replayed. At most 256 MiB.",
     .torchruns = false},

    {.section = kSetup,
     .name = "config",
     .value = "FILE",
     .help = "Read options, program and environment from a YAML file. Environment variables and the command "
             "line override it.",
     .given_by = GivenBy::kVariable,
     .torchruns = false},
    {.section = kSetup,
     .name = "dry-run",
     .help = "Print the commands that would be started on this node, with their environment, and exit.",
     .torchruns = false},

    {.section = kStore,
     .name = "store-only",
     .help = "Run only a coordinator with its store. Prints its port as the first line and exits when its "
             "parent exits.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},
    {.section = kStore,
     .name = "host",
     .value = "ADDR",
     .fallback = "127.0.0.1",
     .help = "Address to listen on; 0.0.0.0: all addresses.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},
    {.section = kStore,
     .name = "port",
     .value = "PORT",
     .fallback = "0",
     .help = "Port to listen on; 0: any free port.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},

    {.section = kAbout,
     .name = "print-completion",
     .value = "bash|zsh|tcsh",
     .help = "Print a completion script for the given shell, to be used as: eval \"$(ddprun "
             "--print-completion bash)\".",
     .given_by = GivenBy::kCommandLineOnly},
    {.section = kAbout,
     .name = "version",
     .help = "Print the version and exit.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},
    {.section = kAbout,
     .name = "help",
     .letter = 'h',
     .help = "Print this help and exit.",
     .given_by = GivenBy::kCommandLineOnly},
};

}  // namespace

absl::Span<const OptionSpec> OptionTable() { return kOptions; }

}  // namespace ddprun
