"""The command lines that are compared, as in real job scripts, and the differences allowed for each."""

import dataclasses

import differences

# Each of these is a set of names from differences.ALL. A case must show all differences in its set, and no others.
USUAL = differences.names(differences.OF_EVERY_WORKER)
PLAIN = USUAL | differences.names(differences.OF_TEMPORARY_LOGS)
LOGS = USUAL | differences.names(differences.OF_ONE_NODE)  # one node with log files
LONE = PLAIN | LOGS
FAILED = LONE | differences.names(differences.OF_FAILURES)
WRONG = differences.names(differences.OF_USAGE_ERRORS)


@dataclasses.dataclass(frozen=True)
class Case:
    """One command line for both torchrun and ddprun, or one per node."""

    name: str
    lines: tuple  # {port}: a free port, {dir}: the case's folder
    differs: frozenset
    env: dict = dataclasses.field(default_factory=dict)  # changes to a minimal environment; None removes a variable
    signals: tuple = ()  # sent to the launcher of node 0, each after `workers` workers received the previous one
    workers: int = 2  # number of workers to wait for before the first signal
    program: str = "torchrun"  # or "launch": python -m torch.distributed.launch and ddprun --pass-local-rank
    torch: str = "current"  # version of the torchrun to compare with: "current" or "1.13"


def case(name, *lines, base=LONE, also=(), without=(), **kwargs):
    return Case(name, lines, (base | frozenset(also)) - frozenset(without), **kwargs)


STATIC = "--nnodes=2 --nproc-per-node=1 --master-addr=127.0.0.1 --master-port={port}"
C10D = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=job7"
NESTED_ERROR = ('{"message": {"message": "ValueError: x", '
                '"extraInfo": {"py_callstack": "Traceback: x", "timestamp": "1700000000"}}}')
FLAT_ERROR = '{"message": "ValueError: x", "timestamp": 1700000000}'

PROGRAMS = (
    case("script", "--nproc-per-node=2 train.py --lr 0.1 --epochs 3"),
    case("underscores and spaces", "--nnodes 1 --nproc_per_node 2 --max_restarts 0 train.py"),
    case("abbreviated options", "--nproc-per=2 --max-r=1 --monitor-i=0.5 train.py"),
    case("PET variables", "train.py", env={"PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "3", "PET_ROLE": "trainer"}),
    case("options over PET variables", "--nproc-per-node=1 train.py", env={"PET_NPROC_PER_NODE": "2"}),
    case("arguments that look like options", "--nproc-per-node=2 train.py --nnodes 3 --tee=3 -m x --nproc-per-node 4"),
    case("ambiguous program argument", "train.py --signal SIGTERM", base=frozenset(), also=["options after the program"]),
    case("two dashes", "--nproc-per-node=1 -- train.py --lr 0.1"),
    case("module", "--nproc-per-node=2 -m train --lr 0.1"),
    case("no python", "--nproc-per-node=2 --no-python python3 train.py --lr 0.1"),
    case("shell", "--nproc-per-node=2 --no-python bash -c 'exec python3 train.py --gpu ${local_rank} $$0 $other' me"),
    case("missing program", "--nproc-per-node=2 --no-python ./nothing.sh", base=frozenset(),
         also=["messages about a missing program", "no empty folders"]),
    case("missing script", "--nproc-per-node=2 nothing.py", base=frozenset(),
         also=["messages about a missing program", "nothing is started", "no empty folders"]),
    case("script in this folder", "--nproc-per-node=1 ./train.py"),
    case("script with an absolute path", "--nproc-per-node=1 {dir}/work/train.py"),
    case("run path", "--nproc-per-node=2 --run-path train.py --lr 0.1", also=["separate interpreter"]),
    case("local rank in arguments", "--nproc-per-node=2 train.py --out 'out/${local_rank}' $local_rank '$$x' '$other' '$'"),
    case("interpreter", "--nproc-per-node=1 train.py", env={"PYTHON_EXEC": "/usr/bin/python3"}),
    case("launch module", "--nproc-per-node=2 train.py --lr 0.1", program="launch",
         also=["no deprecation warning"]),
    case("launch module with use-env", "--nproc-per-node=2 --use-env train.py --lr 0.1", program="launch",
         also=["no deprecation warning"]),
)

NODES = (
    case("standalone", "--standalone --nnodes=1 --nproc-per-node=2 train.py"),
    case("one static node", "--nproc-per-node=2 --master-addr=127.0.0.1 --master-port={port} train.py", base=PLAIN),
    case("two static nodes", f"{STATIC} --node-rank=0 train.py", f"{STATIC} --node-rank=1 train.py",
         base=PLAIN, also=["messages while waiting"]),
    case("two c10d nodes of different size", f"{C10D} --nproc-per-node=1 --local-addr=127.0.0.1 train.py",
         f"{C10D} --nproc-per-node=2 --local-addr=127.0.0.2 train.py", base=PLAIN, also=["messages while waiting"]),
    case("c10d with settings", "--nnodes=1:1 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} "
         "--rdzv-id=job7 --rdzv-conf=join_timeout=60,last_call_timeout=1,read_timeout=30 train.py"),
    case("role and id", "--nproc-per-node=2 --role=trainer --rdzv-id=job7 --master-port={port} train.py", base=PLAIN),
    case("local address", "--nproc-per-node=1 --local-addr=127.0.0.1 train.py", base=PLAIN),
    case("workers host the store", "--nproc-per-node=2 train.py", env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    case("process group", "--nproc-per-node=2 group.py"),
    case("process group in the workers' store", "--nproc-per-node=2 group.py", env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
)

ENVIRONMENT = (
    case("virtual local rank", "--nproc-per-node=2 --virtual-local-rank train.py", env={"CUDA_VISIBLE_DEVICES": "4,5"}),
    case("virtual local rank without a list", "--nproc-per-node=2 --virtual-local-rank train.py"),
    case("virtual local rank with a short list", "--nproc-per-node=2 --virtual-local-rank train.py",
         env={"CUDA_VISIBLE_DEVICES": "4"}, base=frozenset(), also=["text of a refusal", "no empty folders"]),
    case("visible devices", "--nproc-per-node=2 train.py", env={"CUDA_VISIBLE_DEVICES": "4,5"}),
    case("threads not set", "--nproc-per-node=2 train.py", env={"OMP_NUM_THREADS": None}, also=["messages about threads"]),
    case("threads not set for one worker", "--nproc-per-node=1 train.py", env={"OMP_NUM_THREADS": None}),
    case("threads set", "--nproc-per-node=2 train.py", env={"OMP_NUM_THREADS": "4"}),
    case("NCCL's error handling", "--nproc-per-node=1 train.py", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    case("signals named", "--nproc-per-node=1 --signals-to-handle=SIGTERM,SIGUSR1 train.py"),
    case("watchdog", "--nproc-per-node=1 train.py", env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}),
)

OUTPUT = (
    case("log folder", "--nproc-per-node=2 --log-dir=logs train.py", also=["absolute log folder"], base=LOGS),
    case("redirects", "--nproc-per-node=2 --log-dir=logs --redirects=3 train.py", also=["absolute log folder"], base=LOGS),
    case("redirects of ranks", "--nproc-per-node=2 --log-dir={dir}/work/logs -r 0:1,1:2 train.py", base=LOGS),
    case("tee", "--nproc-per-node=2 --log-dir={dir}/work/logs --tee=3 train.py", base=LOGS),
    case("tee of ranks", "--nproc-per-node=2 --log-dir={dir}/work/logs --redirects=1 -t 0:2,1:3 train.py", base=LOGS),
    case("tee without a folder", "--nproc-per-node=2 -t3 train.py", base=LOGS),
    case("tee and role", "--nproc-per-node=2 --log-dir={dir}/work/logs --role=trainer --tee=1 train.py", base=LOGS),
    case("template", "--nproc-per-node=2 --tee=3 --log-line-prefix-template='[${role_name}:${rank}/${local_rank}] $x ' train.py",
         base=LOGS),
    case("template by variable", "--nproc-per-node=2 --tee=1 train.py", base=LOGS,
         env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${rank}|"}),
    case("filtered ranks on the console", "--nproc-per-node=2 --log-dir={dir}/work/logs --local-ranks-filter=1 --tee=3 train.py",
         base=LOGS),
    case("filtered ranks on the console without files", "--nproc-per-node=2 --local-ranks-filter=1 train.py"),
    case("filters", "--nproc-per-node=2 --log-dir={dir}/work/logs --tee=3 --duplicate-stdout-filters=loss,accuracy "
         "--duplicate-stderr-filters=loss train.py --say 'loss=2' --say 'other' --say 'accuracy=3'", base=LOGS),
    case("no log files", "--nproc-per-node=2 --log-dir=/dev/null train.py", base=LOGS),
    case("no log files but tee", "--nproc-per-node=2 --log-dir=/dev/null --tee=3 train.py", base=LOGS,
         also=["prefix without files"]),
    case("events on the console", "--nproc-per-node=2 --event-log-handler=console train.py"),
    case("events of a failure", "--nproc-per-node=2 --max-restarts=1 --event-log-handler=console train.py --fail-rank=1",
         base=FAILED, also=["report of every failure", "no traits of another worker's error"]),
)

FAILURES = (
    case("exit code", "--nproc-per-node=2 train.py --fail-rank=1", base=FAILED),
    case("exit code with log files", "--nproc-per-node=2 --log-dir={dir}/work/logs --tee=3 train.py --fail-rank=1 --exit-code=77",
         base=FAILED, without=["no empty folders"]),
    case("killed", "--nproc-per-node=2 train.py --fail-rank=0 --die-by=SIGKILL", base=FAILED),
    case("segmentation fault", "--nproc-per-node=2 train.py --fail-rank=0 --die-by=SIGSEGV", base=FAILED),
    case("fails once", "--nproc-per-node=2 --max-restarts=3 --log-dir={dir}/work/logs --tee=3 train.py --fail-rank=1 "
         "--fail-below=1",
         base=FAILED, also=["report of every failure"], without=["no empty folders"]),
    case("always fails", "--nproc-per-node=2 --max-restarts=1 --log-dir={dir}/work/logs --tee=3 train.py --fail-rank=1",
         base=FAILED, also=["report of every failure"], without=["no empty folders"]),
    case("recorded exception", "--nproc-per-node=2 recorded.py", base=FAILED, also=["messages about error files"]),
    case("exception", "--nproc-per-node=2 train.py --fail-rank=1 --throw", base=FAILED),
    case("exception in the run path", "--nproc-per-node=2 --run-path train.py --fail-rank=1 --throw",
         base=FAILED, also=["separate interpreter", "only the script's trace"]),
    case("nested error file", f"--nproc-per-node=2 train.py --fail-rank=1 --error-file='{NESTED_ERROR}'",
         base=FAILED, also=["messages about error files"]),
    case("flat error file", f"--nproc-per-node=2 train.py --fail-rank=1 --error-file='{FLAT_ERROR}'",
         base=FAILED, also=["messages about error files"]),
    case("invalid error file", "--nproc-per-node=2 train.py --fail-rank=1 --error-file='no JSON'",
         base=FAILED, also=["an invalid error file is ignored"]),
    case("launcher's error file", f"--nproc-per-node=2 train.py --fail-rank=1 --error-file='{NESTED_ERROR}'",
         env={"TORCHELASTIC_ERROR_FILE": "{dir}/work/own_error.json"}, base=FAILED),
    case("launcher's error file, flat", f"--nproc-per-node=2 train.py --fail-rank=1 --error-file='{FLAT_ERROR}'",
         env={"TORCHELASTIC_ERROR_FILE": "{dir}/work/own_error.json"}, base=FAILED, also=["messages about error files"]),
)

STOPS = (
    case("SIGTERM", "--nproc-per-node=2 train.py --stay", signals=("SIGTERM",), also=["messages about a signal"]),
    case("SIGINT", "--nproc-per-node=2 train.py --stay --catch", signals=("SIGINT",), also=["messages about a signal"]),
    case("SIGHUP", "--nproc-per-node=2 train.py --stay --catch", signals=("SIGHUP",), also=["messages about a signal"]),
    case("signal of --signals-to-handle", "--nproc-per-node=2 --signals-to-handle=SIGUSR1 train.py --stay --catch", signals=("SIGUSR1",),
         also=["messages about a signal"]),
    case("stubborn workers", "--nproc-per-node=2 --shutdown-timeout=1 train.py --stay --stubborn", signals=("SIGTERM",),
         also=["messages about a signal", "messages about SIGKILL"]),
)

WRONG_LINES = (
    case("unknown option", "--nproc-per-node=2 --unknown train.py", base=WRONG),
    case("ambiguous option", "--r=2 train.py", base=WRONG),
    case("no program", "--nproc-per-node=2", base=WRONG),
    case("no nodes", "--nnodes=0 train.py", base=WRONG, also=["status 2", "usage line"]),
    case("wrong number of workers", "--nproc-per-node=two train.py", base=WRONG, also=["status 2", "usage line"]),
    case("wrong number of restarts", "--max-restarts=x train.py", base=WRONG),
    case("no GPUs", "--nproc-per-node=gpu train.py", base=WRONG),
    case("wrong redirect", "--redirects=4 train.py", base=WRONG, also=["status 2", "usage line"]),
)

# Does not use --standalone, which in 1.13 uses port 29400 for all jobs of a host.
OLD_NODE = "--nproc_per_node=2 --master_addr=127.0.0.1 --master_port={port} --monitor_interval=0.1"

OLD = (
    case("1.13: one static node", OLD_NODE + " train.py", base=PLAIN, also=["like the newest torchrun"], torch="1.13"),
    case("1.13: tee", OLD_NODE + " --log_dir={dir}/work/logs --tee=3 train.py", base=USUAL, also=["like the newest torchrun"], torch="1.13"),
    case("1.13: exit code", OLD_NODE + " train.py --fail-rank=1",
         base=FAILED - differences.names(differences.OF_ONE_NODE), also=["like the newest torchrun"], torch="1.13"),
)

CASES = PROGRAMS + NODES + ENVIRONMENT + OUTPUT + FAILURES + STOPS + WRONG_LINES + OLD
