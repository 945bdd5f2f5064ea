"""Measures the steps of `train` and of the same model in PyTorch: on one core, on two, and across a link."""

import json
import os
import statistics
import subprocess
import tempfile

import measure
from hosts import Hosts
from table import medians

HERE = os.path.dirname(os.path.abspath(__file__))
WARM_UP = 4  # steps; the buckets are planned at the end of the second one

ON_CORES = {"layers": 4, "heads": 4, "width": 256, "context": 128}
ON_CORES_BATCH, ON_CORES_STEPS = 16, 12

# 52 MB of gradients. A rank computes a step in about the time in which it sends and receives them.
ACROSS = {"layers": 4, "heads": 8, "width": 512, "context": 128}
ACROSS_BATCH, ACROSS_STEPS = 1, 16  # the batch is that of one rank
GRADIENT_BYTES = 4 * 12_938_240
LINK_MBIT = 2000
BUCKET_CAPS_MB = (1, 4, 10, 50)  # for torch, besides its default


def flags(shape, **more):
    return [f"--{name.replace('_', '-')}={value}" for name, value in {**shape, **more}.items()]


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=measure.DEADLINE_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def train(options, folder, shape, batch, steps, *more):
    """Returns a command line. Its metrics and its trace are in `folder`."""
    for name in "m.jsonl", "t.json":
        if os.path.exists(f"{folder}/{name}"):
            os.remove(f"{folder}/{name}")
    return [options.train, *flags(shape, global_batch=batch, steps=WARM_UP + steps, log_every=1000), *more,
            f"--metrics={folder}/m.jsonl", f"--trace={folder}/t.json"]  # fmt: skip


def step_seconds(folder, tokens):
    with open(f"{folder}/m.jsonl", encoding="utf-8") as lines:
        return statistics.median(tokens / json.loads(line)["tokens_per_s"] for line in list(lines)[WARM_UP:])


def python(options):
    return os.path.join(os.path.dirname(options.torchrun), "python3")


def torch_step(options, shape, batch, steps, *more):
    return [python(options), f"{HERE}/step_torch.py", *flags(shape, batch=batch, steps=steps), *more]


def bench_step(options, table):
    with tempfile.TemporaryDirectory() as folder:
        measure_cores(options, table, folder)
        try:
            with Hosts(2) as hosts:
                hosts.shape(LINK_MBIT)
                measure_link(options, table, folder, hosts)
        except RuntimeError as error:
            table.missing("step across a link", str(error))


def measure_cores(options, table, folder):
    shape, batch = ON_CORES, ON_CORES_BATCH
    tokens = batch * shape["context"]
    one_core = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]

    def one_rank():
        run([*one_core, *train(options, folder, shape, batch, ON_CORES_STEPS)])
        return tokens / step_seconds(folder, tokens)

    def two_ranks():
        run([options.ddprun, "--standalone", "--nproc-per-node=2", "--no-python",
             *train(options, folder, shape, 2 * batch, ON_CORES_STEPS)])  # fmt: skip
        return 2 * tokens / step_seconds(folder, 2 * tokens)

    measured = {"one": one_rank, "two": two_ranks}
    if options.torchrun:
        measured["torch"] = lambda: tokens / float(run([*one_core, *torch_step(options, shape, batch, ON_CORES_STEPS)]))
    median = medians(options.runs, measured)
    if "torch" in median:
        ratio = median["one"] / median["torch"]
        table.row("tokens/s of train on one core", median["one"], median["torch"], "/s", f"PyTorch; {ratio:.2f} times that", at_least=True)
    else:
        table.missing("tokens/s of train on one core", "no torchrun given")
    table.row("tokens/s of two ranks on two cores", median["two"], 1.9 * median["one"], "/s",
              f"1.9 times one rank with half the batch; {median['two'] / median['one']:.2f} times that", at_least=True)  # fmt: skip


def spans(folder, rank):
    """Returns the median seconds of forward, of backward, and from the start of backward to the first bucket."""
    with open(f"{folder}/t.json", encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["pid"] == rank]
    times = {"forward": [], "backward": [], "first": []}
    for step in sorted({e["args"]["step"] for e in events})[WARM_UP:]:
        mine = [e for e in events if e["args"]["step"] == step]
        for name in "forward", "backward":
            times[name].append(sum(e["dur"] for e in mine if e["name"] == name))
        backward = min(e["ts"] for e in mine if e["name"] == "backward")
        times["first"].append(min(e["ts"] for e in mine if e["name"] == "bucket") - backward)
    return {name: statistics.median(values) / 1e6 for name, values in times.items()}


def measure_link(options, table, folder, hosts):
    shape, batch, steps = ACROSS, ACROSS_BATCH, ACROSS_STEPS
    tokens = 2 * batch * shape["context"]
    first_buckets = []

    def agents(command):
        return [options.ddprun, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                f"--rdzv-endpoint={hosts.address(1)}:29400", "--no-python", *command]  # fmt: skip

    def alone():
        """Two runs at the same time that do not communicate."""
        commands = [train(options, folder, shape, batch, steps),
                    [options.train, *flags(shape, global_batch=batch, steps=WARM_UP + steps)]]  # fmt: skip
        hosts.run(commands)
        return step_seconds(folder, tokens / 2)

    def across(*more):
        hosts.run([agents(train(options, folder, shape, 2 * batch, steps, *more))] * 2)
        return step_seconds(folder, tokens)

    def planned():
        seconds = across()
        times = spans(folder, rank=0)
        first_buckets.append(times["forward"] + times["first"])
        return seconds

    def all_reduce():
        outputs = hosts.run([agents([options.collective_load, "all-reduce", str(GRADIENT_BYTES), "5"])] * 2)
        return hosts.number(outputs) / 1e6

    def torch(*more):
        def command(rank):
            return ["env", f"RANK={rank}", "WORLD_SIZE=2", f"MASTER_ADDR={hosts.address(1)}", "MASTER_PORT=29500",
                    "GLOO_SOCKET_IFNAME=eth0", *torch_step(options, shape, batch, steps, *more)]  # fmt: skip
        return float(hosts.run([command(0), command(1)])[0])

    def torch_alone():
        return float(hosts.run([torch_step(options, shape, batch, steps)] * 2)[0])

    measured = {"alone": alone, "ddprun": planned, "late": lambda: across("--no-overlap"), "all-reduce": all_reduce}
    if options.torchrun:
        measured["torch alone"] = torch_alone
        measured["default"] = torch
        for cap in BUCKET_CAPS_MB:
            measured[cap] = lambda cap=cap: torch(f"--bucket-cap-mb={cap}")
    median = medians(options.runs, measured)
    ours = median["ddprun"]
    what = f"step with {GRADIENT_BYTES / 1e6:.0f} MB of gradients, link of {LINK_MBIT / 1000:g} Gbit/s"
    communicates = statistics.median(first_buckets) + median["all-reduce"]
    ideal = max(median["alone"], communicates)
    table.row(what, 1e3 * ours, 1.05e3 * ideal, "ms",
              f"1.05 x the larger of compute, {1e3 * median['alone']:.0f} ms, and forward, first bucket and all-reduce, "
              f"{1e3 * communicates:.0f} ms; without overlap {1e3 * median['late']:.0f} ms")  # fmt: skip
    if options.torchrun:
        default, cap = median["default"], min(BUCKET_CAPS_MB, key=median.get)
        best = min(default, median[cap])
        compute = f"its compute {1e3 * median['torch alone']:.0f} ms"
        table.row(what, 1e3 * ours, 780 * default, "ms", f"0.78 x torch DDP's {1e3 * default:.0f} ms, {compute}; ratio {ours / default:.3f}")
        caps = ", ".join(f"{c}: {1e3 * median[c]:.0f}" for c in BUCKET_CAPS_MB)
        table.row(what, 1e3 * ours, 930 * best, "ms", f"0.93 x torch DDP's best, {1e3 * best:.0f} ms (bucket_cap_mb {caps}); "
                  f"ratio {ours / best:.3f}")  # fmt: skip
    else:
        table.missing(what + ", torch DDP", "no torchrun given")
    measure_bytes(table, options, folder, hosts, agents)


def measure_bytes(table, options, folder, hosts, agents):
    def per_step(batch, *more):
        """The bytes that host 1 sends in a step, from the interface's counter: the difference of a long run and a short one."""
        sent = []
        for steps in 1, 9:
            before = hosts.sent_bytes(1)
            hosts.run([agents(train(options, folder, ACROSS, batch, steps, *more))] * 2)
            sent.append(hosts.sent_bytes(1) - before)
        return (sent[1] - sent[0]) / 8

    batch = 2 * ACROSS_BATCH
    plain = per_step(batch)
    mb = f"{plain / 1e6:.1f} MB sent in a step for {GRADIENT_BYTES / 1e6:.1f} MB of gradients"
    table.row("bytes sent with --compression=bf16", per_step(batch, "--compression=bf16") / plain, 0.51, "", f"1/2 of {mb}")
    accumulated = per_step(4 * batch, "--accumulate=4") / 4 / plain
    table.row("bytes sent for each sequence, --accumulate=4", accumulated, 0.255, "", "1/4 of those of steps of one pass")
