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
     .help = "Number of nodes N, or a range MIN:MAX. With 1:4, the job can start with one node and grow "
             "when more nodes join."},
    {.section = kSize,
     .name = "nproc-per-node",
     .value = "N|auto|gpu|cpu",
     .fallback = "1",
     .help = "Number of workers on this node. gpu: one per GPU. cpu: one per CPU. auto: like gpu if this "
             "node has GPUs, otherwise like cpu."},
    {.section = kSize,
     .name = "scale-up",
     .value = "immediate|at-snapshot|never",
     .fallback = "immediate",
     .help = "When to admit nodes that join a running job. immediate: within last_call_timeout (see "
             "--rdzv-conf). at-snapshot: like immediate, but after a snapshot that the workers take on "
             "request (see --snapshot-timeout). never: only when a round ends for another reason.",
     .torchruns = false},
    {.section = kSize,
     .name = "snapshot-timeout",
     .value = "SECONDS",
     .fallback = "60",
     .help = "How long to wait for a snapshot that --scale-up=at-snapshot or ddpctl drain has requested. "
             "After that, the round ends without the snapshot.",
     .torchruns = false},
    {.section = kSize,
     .name = "node-unit",
     .value = "K",
     .fallback = "1",
     .help = "The number of nodes in a round is a multiple of K; surplus nodes wait as spares.",
     .torchruns = false},
    {.section = kSize,
     .name = "hosts",
     .value = "HOST[:SLOTS],...",
     .help = "Start the job on these hosts over ssh, with SLOTS workers on each (default: --nproc-per-node). "
             "The first host hosts the coordinator. ddprun must have the same path on all hosts.",
     .given_by = GivenBy::kFile,
     .list = ListForm::kCommas,
     .torchruns = false},
    {.section = kSize,
     .name = "ssh-command",
     .value = "COMMAND",
     .fallback = "ssh",
     .help = "The ssh command of --hosts with its first options, such as \"ssh -F config\". It is split as a "
             "shell does.",
     .given_by = GivenBy::kFile,
     .torchruns = false},

    {.section = kRendezvous,
     .name = "rdzv-backend",
     .value = "static|c10d|etcd",
     .fallback = "static",
     .help =
         "How the set of nodes is determined. static: a fixed number of nodes, each with its own "
         "--node-rank. c10d: nodes may join and leave within the limits of --nnodes. etcd: as c10d, and the "
         "job survives the loss of each of its nodes, because etcd knows which one coordinates. c10d is the "
         "default for several nodes with --rdzv-endpoint and for a range of nodes, unless --node-rank, "
         "--master-addr or --master-port is given."},
    {.section = kRendezvous,
     .name = "rdzv-endpoint",
     .value = "HOST[:PORT]",
     .help = "Address of the coordinator. With c10d, the node with this address hosts the coordinator, and "
             "PORT defaults to 29400; with --quorum=voters, there may be up to five addresses, separated by "
             "commas. With static, the node with rank 0 hosts the coordinator, and PORT is required. With "
             "etcd, the addresses of etcd's members, separated by commas; PORT defaults to "
             "2379."},
    {.section = kRendezvous,
     .name = "rdzv-id",
     .value = "ID",
     .fallback = "none",
     .help =
         "Name of the job. It must be the same on all nodes. With etcd, it is required, and is a new one for "
         "each job."},
    {.section = kRendezvous,
     .name = "rdzv-conf",
     .value = "KEY=VALUE,...",
     .help =
         "Rendezvous settings, shown here with their defaults. join_timeout=600: seconds to wait for "
         "the minimum number of nodes (with static, timeout has the same meaning). "
         "last_call_timeout=30: seconds to wait for more nodes once the minimum has joined; for a range "
         "of nodes without --rdzv-endpoint and --rdzv-backend, the default is 1, and the first round does "
         "not wait. "
         "read_timeout=60: seconds to search for the coordinator. "
         "lease_ms=5000: milliseconds after which a silent node counts as lost. is_host=true|false: "
         "whether this node hosts the coordinator; default: decided by --rdzv-endpoint. For etcd: "
         "etcd_prefix=/ddprun: prefix of the keys; protocol=http|https; cacert=FILE, cert=FILE, key=FILE: "
         "PEM "
         "files for https; user=NAME, password_file=FILE. Accepted for "
         "compatibility and ignored: close_timeout, heartbeat_timeout, keep_alive_interval, "
         "keep_alive_max_attempt.",
     .list = ListForm::kCommas},
    {.section = kRendezvous,
     .name = "standalone",
     .help = "Run the job on this node only. The node hosts its own coordinator on a free port."},
    {.section = kRendezvous,
     .name = "node-rank",
     .value = "RANK",
     .fallback = "0",
     .help = "Rank of this node, from 0 to N-1. With c10d, the rank is optional; the nodes are "
             "ordered by it if all of them have one."},
    {.section = kRendezvous,
     .name = "master-addr",
     .value = "HOST",
     .fallback = "127.0.0.1",
     .help = "Host of the node with rank 0 (static only)."},
    {.section = kRendezvous,
     .name = "master-port",
     .value = "PORT",
     .help = "Port of the coordinator on the host --master-addr (static only). Default: 29500, or a free "
             "port if the job has a single node."},
    {.section = kRendezvous,
     .name = "local-addr",
     .value = "HOST",
     .help = "Address or name at which other nodes reach this node, or the name of a network interface, "
             "whose first address is used. Default: the address from which this node reaches the "
             "coordinator."},

    {.section = kWorkers,
     .name = "module",
     .letter = 'm',
     .help = "PROGRAM is a Python module, run with python -m."},
    {.section = kWorkers,
     .name = "no-python",
     .help = "PROGRAM is an executable, given by its path or found on PATH. It is not run with Python."},
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
     .help = "Name of the group that the workers on this node belong to (ROLE_NAME). ROLE_RANK is the "
             "worker's rank among the workers with the same role, and ROLE_WORLD_SIZE their number."},
    {.section = kWorkers,
     .name = "virtual-local-rank",
     .help = "Each worker sees only its own GPU (CUDA_VISIBLE_DEVICES) and has LOCAL_RANK=0."},
    {.section = kWorkers,
     .name = "numa-binding",
     .value = "node|socket|exclusive|core-complex",
     .help = "Bind each worker to CPUs near the GPU whose index is its local rank. node: all CPUs of the "
             "GPU's NUMA node. socket: all CPUs of that NUMA node's socket. exclusive: a share of that "
             "NUMA node's cores for this GPU only. core-complex: one group of cores that share a cache. "
             "Default: no binding.",
     .given_by = GivenBy::kFile},
    {.section = kWorkers,
     .name = "pass-local-rank",
     .help = "Pass --local-rank=N as the first argument of PROGRAM, like python -m "
             "torch.distributed.launch.",
     .torchruns = false},
    {.section = kWorkers,
     .name = "use-env",
     .help = "Do not pass --local-rank; workers read LOCAL_RANK instead. This is the default. The option "
             "overrides --pass-local-rank.",
     .given_by = GivenBy::kFile},

    {.section = kFailures,
     .name = "max-restarts",
     .value = "N",
     .fallback = "0",
     .help = "How many times the workers may be restarted after failures. A node that joins, leaves or is "
             "lost costs no restart."},
    {.section = kFailures,
     .name = "max-restarts-without-progress",
     .value = "N",
     .fallback = "3",
     .help = "After N consecutive restarts without a new training step, the next failure ends the job. "
             "This applies only if workers report their steps. 0: no limit.",
     .torchruns = false},
    {.section = kFailures,
     .name = "exclude-after",
     .value = "N",
     .fallback = "0",
     .help = "Exclude a host from later rounds after N incidents. An incident is a failure whose first "
             "cause was on this host, or the loss of its node. A host is not excluded if fewer than the "
             "minimum number of nodes would remain. 0: disabled.",
     .torchruns = false},
    {.section = kFailures,
     .name = "hang-timeout",
     .value = "SECONDS|auto",
     .fallback = "auto",
     .help =
         "How long no worker may make progress. auto: three times the longest interval between two reports "
         "of steps, over the worker SDK or by touching $DDPRUN_HEARTBEAT_FILE, but at least 10 seconds; then "
         "a "
         "note names the ranks that are behind, and after three times as long --on-hang applies. Workers "
         "that "
         "report nothing are not judged. SECONDS: both after this time; workers that report nothing are "
         "judged by their output and processor time. 0: no limit.",
     .torchruns = false},
    {.section = kFailures,
     .name = "on-hang",
     .value = "report|restart",
     .fallback = "report",
     .help =
         "What to do when no worker makes progress for so long. report: nothing but the note. restart: the "
         "round fails, and a restart is spent.",
     .torchruns = false},
    {.section = kFailures,
     .name = "quorum",
     .value = "none|majority|voters",
     .fallback = "voters",
     .help = "Which nodes may continue the job after the network has split them into groups, or some are "
             "lost. voters: only a group that has a majority of up to five nodes, the voters. It continues "
             "without the coordinator, which moves to one of them. Only with --rdzv-backend=c10d; with other "
             "backends, and if a scheduler or --hosts has started a fixed number of nodes, the default is "
             "none. none: any group with at least the minimum number of nodes, as with torchrun. majority: "
             "only a group that also has at least half of the last round's nodes, not counting those that "
             "left or were drained. With none and majority, the coordinator must be in the group, except "
             "with etcd.",
     .torchruns = false},
    {.section = kFailures,
     .name = "min-uptime",
     .value = "SECONDS",
     .fallback = "0",
     .help = "If a worker fails within this time after its start and before its first step, the job ends "
             "without a restart. 0: disabled.",
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
     .help = "Signals on which this launcher stops its workers and leaves the job. The signal is forwarded "
             "to the workers.",
     .list = ListForm::kCommas},
    {.section = kFailures,
     .name = "preempt-signal",
     .value = "NAME[@SECONDS],...",
     .help = "Signals that announce that this node goes away, by default 60 s later: a notice of "
             "pre-emption. The workers of "
             "the job are asked for a snapshot, and the job continues without this node. The workers get the "
             "first signal.",
     .list = ListForm::kCommas,
     .torchruns = false},
    {.section = kFailures,
     .name = "shutdown-timeout",
     .value = "SECONDS",
     .help = "Time between the first signal and SIGKILL when workers are stopped. Default: "
             "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, otherwise 30."},
    {.section = kFailures,
     .name = "exit-codes",
     .value = "torchrun|scheduler",
     .fallback = "torchrun",
     .help = "The exit codes of ddprun; see the table below. torchrun: 0 for success, 1 for every "
             "failure. scheduler: also 75 if the same job may succeed when it is started again.",
     .torchruns = false},

    {.section = kOutput,
     .name = "log-dir",
     .value = "DIR",
     .help = "Base directory for log and error files. Default: a new directory in the temporary directory. "
             "/dev/null: no files."},
    {.section = kOutput,
     .name = "redirects",
     .letter = 'r',
     .value = "D|RANK:D,...",
     .fallback = "0",
     .help = "Streams that are written to files instead of the console. D is 0 for none, 1 for stdout, 2 "
             "for stderr, 3 for both. A single D applies to all local ranks; RANK:D,... applies to the "
             "listed local ranks only.",
     .list = ListForm::kCommas},
    {.section = kOutput,
     .name = "tee",
     .letter = 't',
     .value = "D|RANK:D,...",
     .fallback = "0",
     .help = "Streams that are written to files and, with a prefix on each line, to the console. D has "
             "the same meaning as in --redirects.",
     .list = ListForm::kCommas},
    {.section = kOutput,
     .name = "log-line-prefix-template",
     .value = "TEXT",
     .help = "Prefix of the lines that --tee writes to the console. ${role_name}, ${local_rank}, ${rank} "
             "and ${hostname} are replaced. Default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, otherwise "
             "[${role_name}${local_rank}]:"},
    {.section = kOutput,
     .name = "local-ranks-filter",
     .value = "RANK,...",
     .help =
         "Show only the output of these local ranks on the console. Their own files are not affected; the "
         "filtered files contain only what the console shows.",
     .list = ListForm::kCommas},
    {.section = kOutput,
     .name = "duplicate-stdout-filters",
     .value = "TEXT,...",
     .help = "Also write to filtered_stdout.log each stdout line that --tee writes and that contains one "
             "of these texts. "
             "In a text, write a comma as two commas (,,).",
     .list = ListForm::kEscaped},
    {.section = kOutput,
     .name = "duplicate-stderr-filters",
     .value = "TEXT,...",
     .help = "Also write to filtered_stderr.log each stderr line that --tee writes and that contains one "
             "of these texts. "
             "In a text, write a comma as two commas (,,).",
     .list = ListForm::kEscaped},
    {.section = kOutput,
     .name = "log-max-size",
     .value = "SIZE",
     .help = "Maximum size on disk of each stream of each worker, in bytes or with a suffix, such as 500M "
             "or 2G. The oldest lines are dropped. Default: no limit.",
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
     .help = "Where the job's events are written. null: nowhere. console: to stderr, one JSON object per "
             "line, like torchrun."},
    {.section = kObservers,
     .name = "metrics-handler",
     .value = "null|console",
     .fallback = "null",
     .help = "Where torchrun's metrics are written. null: nowhere. console: to stderr, in the format of "
             "torchrun's console handler.",
     .torchruns = false},
    {.section = kObservers,
     .name = "record",
     .value = "FILE",
     .help =
         "If this node hosts the coordinator, record the coordinator's inputs, so that its decisions "
         "can be replayed. The recording stops at 256 MiB. With --quorum=voters or --rdzv-backend=etcd, each "
         "node that comes to host it writes a file of its own, FILE.EPOCH, where EPOCH counts the "
         "coordinators of the job.",
     .torchruns = false},

    {.section = kSetup,
     .name = "config",
     .value = "FILE",
     .help = "Read options, program and environment from a YAML file. PET_ variables and the command line "
             "override the options in the file.",
     .given_by = GivenBy::kVariable,
     .torchruns = false},
    {.section = kSetup,
     .name = "dry-run",
     .help = "Print the commands that would be started on this node, with their environment, and exit.",
     .torchruns = false},

    {.section = kStore,
     .name = "store-only",
     .help = "Run only a coordinator with its store, without a job. ddprun prints the port as the first "
             "line on stdout, and exits when its parent process exits. At one of several addresses of "
             "--rdzv-endpoint, it votes in the job as a witness, without coordinating it.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},
    {.section = kStore,
     .name = "host",
     .value = "ADDR",
     .fallback = "127.0.0.1",
     .help = "With --store-only: address to listen on. 0.0.0.0: all addresses.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},
    {.section = kStore,
     .name = "port",
     .value = "PORT",
     .fallback = "0",
     .help = "With --store-only: port to listen on. 0: any free port.",
     .given_by = GivenBy::kCommandLineOnly,
     .torchruns = false},

    {.section = kAbout,
     .name = "print-completion",
     .value = "bash|zsh|tcsh",
     .help = "Print a completion script for the given shell. For bash, run: eval \"$(ddprun "
             "--print-completion bash)\"",
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
