"""Measures on a GPU: steps of `train` and of the same model in PyTorch, in-place recovery, and the start of PyTorch workers.

Two ranks share a GPU where the machine has one: NCCL must have NCCL_MULTI_RANK_GPU_ENABLE.
"""

import os
import tempfile

import in_place
import measure
from step import WARM_UP, flags, python, run, step_seconds
from table import interleaved, medians, ms

SHAPE = {"layers": 8, "heads": 8, "width": 512, "context": 256}
BATCH, STEPS = 32, 30
TORCH_WORKER = f"{os.path.dirname(os.path.abspath(__file__))}/../interop/nccl_worker.py"
FEW_RUNS = 5  # of measurements that start PyTorch for each value
RECOVERY_LIMIT_MS = 50


def bench_gpu(options, table):
    try:
        run([options.train, *flags(SHAPE, steps=1, global_batch=1), "--device=cuda"])
    except RuntimeError as error:
        table.missing("GPU", str(error).rpartition("train: ")[2])
        return
    bench_step(options, table)
    bench_start(options, table)
    bench_recovery(options, table)


def bench_step(options, table):
    tokens = BATCH * SHAPE["context"]
    with tempfile.TemporaryDirectory() as folder:
        metrics = f"{folder}/m.jsonl"

        def ours():
            if os.path.exists(metrics):
                os.remove(metrics)
            run([options.train, *flags(SHAPE, global_batch=BATCH, steps=WARM_UP + STEPS, log_every=1000), "--device=cuda",
                 f"--metrics={metrics}"])  # fmt: skip
            return tokens / step_seconds(folder, tokens)

        def torch():
            command = [python(options), f"{os.path.dirname(os.path.abspath(__file__))}/step_torch.py", "--device=cuda"]
            return tokens / float(run([*command, *flags(SHAPE, batch=BATCH, steps=STEPS)]))

        median = medians(options.runs, {"ours": ours, **({"torch": torch} if options.torchrun else {})})
    what = "tokens/s of train on a GPU, float32"
    if "torch" in median:
        ratio = median["ours"] / median["torch"]
        table.row(what, median["ours"], median["torch"], "/s", f"PyTorch in eager mode; {ratio:.2f} times that", at_least=True)
    else:
        table.missing(what, f"no torchrun given; train has {median['ours']:.0f}")


def bench_start(options, table):
    what = "a PyTorch worker with NCCL, from start to exit"
    if not options.torchrun:
        table.missing(what, "no torchrun given")
        return
    worker = [python(options), os.path.normpath(TORCH_WORKER)]
    measured = {
        "ddprun": lambda: measure.whole_command([options.ddprun, "--nproc-per-node=1", "--no-python", *worker]),
        "torchrun": lambda: measure.whole_command(
            [options.torchrun, "--nproc-per-node=1", "--monitor-interval=0.01", "--no-python", *worker]
        ),
    }
    median = medians(min(options.runs, FEW_RUNS), measured)
    table.row(what, ms(median["ddprun"]), ms(median["torchrun"]), "ms", "torchrun")


def bench_recovery(options, table):
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    device = ["--device=cuda"]
    measured = {
        "joiner": lambda: in_place.one_agent(options, 2, device),
        "survivors": lambda: in_place.three_agents(options, device),
        "restart": lambda: in_place.restart(options, 2, device),
    }
    values = interleaved(min(options.runs, FEW_RUNS), measured)
    median = {name: ms(measure.median(v)) for name, v in values.items()}
    for name, what in (
        ("joiner", "SIGKILL of 1 of 2 workers on a GPU to the next step, with the joiner"),
        ("survivors", "SIGKILL of 1 of 3 agents to the next step of the survivors on a GPU"),
    ):
        note = f"slowest {ms(max(values[name])):.0f} ms; restart of both workers {median['restart']:.0f} ms"
        table.row(what, median[name], RECOVERY_LIMIT_MS, "ms", note)
