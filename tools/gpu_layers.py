"""Runs what proves the GPU support (docs/decisions/0014-gpu.md, "Proof"). Last line: `N passed, N failed, N skipped`.

1. build     kernels compile for GPUs; the tables of functions resolve against the toolkit's libraries
2. stand-in  the ordinary tests of the GPU code, on the stand-in for CUDA's driver, NCCL and cuBLAS. No GPU is used
3. device    on the GPUs of this machine: kernels and products against the CPU, collectives, the data-parallel step, training,
             kills with in-place recovery, and PyTorch workers. Without a GPU, each is skipped by name

Each layer is reported by itself. Case counts are those of GoogleTest; a program counts as one.
"""

import argparse
import concurrent.futures
import ctypes
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM_LIMIT_S = 600
CASES_AT_A_TIME = 4

BUILD = [
    "//third_party/cuda:headers_test",
    "//worker_sdk/device/cuda:kernels_test",
    "//worker_sdk/device/cuda:driver_test",
    "//worker_sdk/comm/nccl:library_test",
    "//examples/train/gpu:cublas_test",
]
STAND_IN = [
    "//worker_sdk/testing/gpu/...",
    "//worker_sdk/device/...",
    "//worker_sdk/comm/nccl/...",
    "//worker_sdk/ddp:data_parallel_gpu_test",
    "//worker_sdk/optim:optimizer_gpu_test",
    "//worker_sdk:context_gpu_test",
    "//examples/train/gpu/...",
    "//tests/fault:gpu_collectives_test",
    "//tests/train:train_device_test",
]
# Programs of GoogleTest that skip the cases for which the machine has too few GPUs.
ON_DEVICE = [
    ("kernels of the SDK", "//worker_sdk/device:array_ops_test"),
    ("kernels of the model", "//examples/train/gpu:model_kernels_test"),
    ("the model", "//examples/train/gpu:gpu_gpt_test"),
    ("connecting with a GPU", "//worker_sdk:context_gpu_test"),
    ("collectives through NCCL", "//worker_sdk/comm/nccl:nccl_group_test"),
    ("messages of memory of GPUs", "//worker_sdk/comm/nccl:nccl_message_test"),
    ("optimizers", "//worker_sdk/optim:optimizer_gpu_test"),
    ("the data-parallel step", "//worker_sdk/ddp:data_parallel_gpu_test"),
]
PROGRAMS = ["//examples/train", "//launcher:ddprun"]
NOT_TWICE_ON_ONE_GPU = "Duplicate GPU|ncclInvalidUsage"  # how NCCL refuses
IN_PLACE = "kills of two ranks in turn, with in-place recovery"
NUM_KILLS, STEPS_BETWEEN_KILLS = 10, 50


class Tally:
    """The results of one layer."""

    def __init__(self, name):
        self.name = name
        self.passed, self.failed, self.skipped = 0, [], []

    def __str__(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"

    def fail(self, what, detail=""):
        self.failed.append(what)
        print(f"FAILED: {what}\n{detail}".rstrip(), flush=True)

    def skip(self, what, reason):
        self.skipped.append(what)
        print(f"skipped: {what}: {reason}", flush=True)


def run(command, environment=None, limit_s=PROGRAM_LIMIT_S):
    """Returns (exit code, output); the code is None after the limit."""
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=limit_s, text=True, errors="replace", check=False)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as expired:
        return None, f"no end within {limit_s} s\n" + str(expired.stdout or "")[-4000:]
    except OSError as error:
        return None, str(error)


def run_bazel(tally, targets):
    """Runs tests as tools/dev test does."""
    done = subprocess.run([f"{ROOT}/tools/test", *targets], stdout=subprocess.PIPE, text=True, check=False)
    for name in re.findall(r"^skipped: (.*)$", done.stdout, re.MULTILINE):
        tally.skip(name, "see its test")
    last = re.search(r"(\d+) passed, (\d+) failed\s*$", done.stdout)
    if last is None:
        return tally.fail(f"tools/dev test {' '.join(targets)}", done.stdout)
    tally.passed += int(last[1])
    for _ in range(int(last[2])):
        tally.fail(f"a case of tools/dev test {' '.join(targets)}", "see above")


def find_gpus():
    """Returns (names, reason): the GPUs that CUDA's driver shows, or why there are none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return [], f"no GPU: there is no NVIDIA driver ({error})"
    count, name = ctypes.c_int(), ctypes.create_string_buffer(100)
    for call in (lambda: cuda.cuInit(0), lambda: cuda.cuDeviceGetCount(ctypes.byref(count))):
        if (error := call()) != 0:
            return [], f"no GPU: the NVIDIA driver returns CUDA error {error}"
    names = []
    for index in range(count.value):
        device = ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
    return names, "no GPU: the NVIDIA driver shows none" if not names else ""


def run_case(path, case, environment):
    """Runs one case of a GoogleTest program. Returns (its element of the report, output); the element is None without a report."""
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.xml"
        code, output = run([path, f"--gtest_filter={case}", f"--gtest_output=xml:{report}"], {**environment, "TEST_TMPDIR": folder})
        try:
            found = next(xml.etree.ElementTree.parse(report).getroot().iter("testcase"), None)
        except (OSError, xml.etree.ElementTree.ParseError):
            found = None
    return found, f"exit code {code}\n{output[-4000:]}"


def run_gtest(tally, bin_dir, name, label, environment):
    """Each case has a process of its own: after some errors, a process cannot use the GPU any more."""
    start = time.monotonic()
    path = f"{bin_dir}/{label[2:].replace(':', '/')}"
    code, listed = run([path, "--gtest_list_tests"], environment)
    suite, cases = "", []
    for line in listed.splitlines():
        word = line.split("#")[0].rstrip()
        if word.startswith("  "):
            cases.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    if code != 0 or not cases:
        return tally.fail(f"{name} ({label})", f"exit code {code}\n{listed[-4000:]}")
    with concurrent.futures.ThreadPoolExecutor(CASES_AT_A_TIME) as pool:
        results = pool.map(lambda case: run_case(path, case, environment), cases)
        for case, (found, output) in zip(cases, results):
            what = f"{name}: {case}"
            if found is None or found.find("failure") is not None:
                tally.fail(what, output)
            elif (skipped := found.find("skipped")) is not None:
                tally.skip(what, skipped.get("message", "").strip().split("\n")[-1])
            else:
                tally.passed += 1
    print(f"{name}: {len(cases)} cases in {time.monotonic() - start:.0f} s", flush=True)
    return None


def losses_of(command, environment):
    """Returns (losses of the steps, output) of `train`; losses are None if it failed."""
    code, output = run(command, environment)
    found = [float(loss) for loss in re.findall(r"^step=\d+/\d+ loss=([0-9.]+)", output, re.MULTILINE)]
    return (found if code == 0 and found else None), output


def run_train(tally, bin_dir, num_gpus, environment):
    train = [f"{bin_dir}/examples/train/train", "--steps=30", "--log-every=1"]
    expected, output = losses_of([*train, "--device=cpu"], environment)
    if expected is None:
        return tally.fail("train --device=cpu", output[-4000:])

    def compare(what, command, extra, refusal=None):
        found, output = losses_of(command, {**environment, **extra})
        if found is None and refusal and re.search(refusal, output):
            return tally.skip(what, "NCCL refuses two ranks on one GPU")
        if found is None:
            return tally.fail(what, output[-4000:])
        # The losses of a GPU differ from those of a CPU by rounding, which grows with each step.
        worst = max(abs(a - b) for a, b in zip(expected, found))
        if len(found) != len(expected) or worst > 0.02:
            return tally.fail(what, f"losses differ by {worst}: {found} instead of {expected}")
        print(f"passed: {what}: losses differ from the CPU's by at most {worst:.1e}")
        tally.passed += 1

    compare("train --device=cuda with 1 rank", [*train, "--device=cuda"], {})
    ddprun = [f"{bin_dir}/launcher/ddprun", "--standalone", "--nproc-per-node=2"]
    if num_gpus >= 2:
        compare("train --device=cuda with 2 ranks on 2 GPUs", [*ddprun, *train, "--device=cuda"], {})
    else:
        tally.skip("train --device=cuda with 2 ranks on 2 GPUs", f"this machine has {num_gpus} GPU")
    compare("train --device=cuda with 2 ranks on one GPU", [*ddprun, *train, "--device=cuda"],
            {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}, refusal=NOT_TWICE_ON_ONE_GPU)


def worker_of(marker, rank):
    """Returns the PID of `train` with this rank whose environment has `marker`; None if there is none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/comm", encoding="utf-8") as name:
                variables = environ.read().decode(errors="replace").split("\0")
                if name.read() == "train\n" and marker in variables and f"RANK={rank}" in variables:
                    return int(pid)
        except OSError:
            continue
    return None


def kill_in_turn(job, marker):
    """Kills rank 0, rank 1, rank 0, ... of `train`. Returns (seconds from each kill to the next step, output)."""
    output, times = "", []
    killed, next_kill, recovered = None, STEPS_BETWEEN_KILLS, False
    for line in job.stdout:
        output += line
        recovered = recovered or (line.startswith("event=train ") and " in_place=yes " in line)
        step = re.match(r"step=(\d+)/", line)
        if killed and recovered and step:
            times.append(time.monotonic() - killed)
            killed, next_kill = None, int(step[1]) + STEPS_BETWEEN_KILLS
        elif not killed and step and int(step[1]) >= next_kill and len(times) < NUM_KILLS:
            if (victim := worker_of(marker, len(times) % 2)) is not None:
                killed, recovered = time.monotonic(), False
                os.kill(victim, signal.SIGKILL)
    return times, output


def run_in_place(tally, bin_dir, num_gpus, environment):
    steps = (NUM_KILLS + 4) * STEPS_BETWEEN_KILLS
    command = [f"{bin_dir}/launcher/ddprun", "--standalone", "--nproc-per-node=2", f"--max-restarts={NUM_KILLS}", "--no-python",
               f"{bin_dir}/examples/train/train", f"--steps={steps}", "--log-every=1", "--device=cuda", "--in-place"]  # fmt: skip
    if num_gpus < 2:
        environment = {**environment, "NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}
    last = r"^step=\d+ loss=.* sha256=.*$"
    code, output = run(command, environment)
    if code != 0 and num_gpus < 2 and re.search(NOT_TWICE_ON_ONE_GPU, output):
        return tally.skip(IN_PLACE, "NCCL refuses two ranks on one GPU")
    expected = re.findall(last, output, re.MULTILINE)
    if code != 0 or len(expected) != 1:
        return tally.fail(f"{IN_PLACE}: the undisturbed run", f"exit code {code}\n{output[-4000:]}")
    marker = f"DDPRUN_GPU_LAYERS={os.getpid()}"
    with subprocess.Popen(["env", marker, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as job:  # fmt: skip
        limit = threading.Timer(PROGRAM_LIMIT_S, job.terminate)
        limit.start()
        times, output = kill_in_turn(job, marker)
        job.wait()
        limit.cancel()
    if job.returncode != 0 or len(times) != NUM_KILLS or re.findall(last, output, re.MULTILINE) != expected:
        return tally.fail(IN_PLACE, f"exit code {job.returncode}, {len(times)} of {NUM_KILLS} recoveries, "
                          f"expected {expected}\n{output[-6000:]}")  # fmt: skip
    print(f"passed: {IN_PLACE}: the parameters are those of an undisturbed run; from SIGKILL to the next step "
          f"{1e3 * statistics.median(times):.0f} ms (median of {len(times)}; slowest {1e3 * max(times):.0f} ms)")  # fmt: skip
    tally.passed += 1
    return None


def run_torch(tally, bin_dir, num_gpus, environment):
    what = "PyTorch workers with NCCL under ddprun"
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    venv = os.environ.get("DDPRUN_TORCH_VENV", f"{cache}/ddprun/torch-venv")
    for python in (f"{venv}/bin/python3", "python3"):
        code, _ = run([python, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"], environment)
        if code == 0:
            break
    else:
        return tally.skip(what, "no python3 here has a PyTorch that sees the GPU (DDPRUN_TORCH_VENV)")
    code, output = run([f"{bin_dir}/launcher/ddprun", "--standalone", "--nproc-per-node=gpu", "--no-python", python,
                        f"{ROOT}/tests/interop/nccl_worker.py"], environment)
    lines = re.findall(r"rank=\d+ sum=([0-9.]+)", output)
    if code == 0 and len(lines) == num_gpus and all(float(x) == num_gpus * (num_gpus + 1) / 2 for x in lines):
        tally.passed += 1
    else:
        tally.fail(what, f"exit code {code}\n{output[-4000:]}")


def run_device(tally, bin_dir):
    """Returns a line that says what ran on which GPUs."""
    gpus, reason = find_gpus()
    if any(name.startswith("Stand-in ") for name in gpus):
        gpus, reason = [], "LD_LIBRARY_PATH leads to the stand-in: unset it"
    if not gpus:
        names = [name for name, _ in ON_DEVICE]
        names += ["train --device=cuda with 1 rank", "train --device=cuda with 2 ranks on 2 GPUs",
                  "train --device=cuda with 2 ranks on one GPU", IN_PLACE, "PyTorch workers with NCCL under ddprun"]
        for name in names:
            tally.skip(name, reason)
        return "Nothing ran on a GPU."
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DDPRUN_STAND_IN_")}
    for name, label in ON_DEVICE:
        run_gtest(tally, bin_dir, name, label, environment)
    run_train(tally, bin_dir, len(gpus), environment)
    run_in_place(tally, bin_dir, len(gpus), environment)
    run_torch(tally, bin_dir, len(gpus), environment)
    return f"The layer \"device\" ran on {len(gpus)} of: {', '.join(sorted(set(gpus)))}."


def main():
    parser = argparse.ArgumentParser(prog="tools/dev gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["build", "stand-in", "device"], help="run one layer")
    parser.add_argument("--bin", help=argparse.SUPPRESS)  # the folder of what Bazel has built
    parser.add_argument("--targets", action="store_true", help=argparse.SUPPRESS)  # print what `device` needs
    arguments = parser.parse_args()
    if arguments.targets:
        print("\n".join([label for _, label in ON_DEVICE] + PROGRAMS))
        return 0

    tallies, on_gpu = [], "The layer \"device\" did not run, so nothing ran on a GPU."
    for name in ["build", "stand-in", "device"]:
        if arguments.only not in (None, name):
            continue
        tally = Tally(name)
        tallies.append(tally)
        print(f"layer {name}:", flush=True)
        if name == "build":
            run_bazel(tally, BUILD)
        elif name == "stand-in":
            run_bazel(tally, STAND_IN)
        else:
            on_gpu = run_device(tally, arguments.bin)
    print()
    for tally in tallies:
        print(f"layer {tally.name}: {tally}")
    print(on_gpu)
    failed = sum(len(t.failed) for t in tallies)
    print(f"{sum(t.passed for t in tallies)} passed, {failed} failed, {sum(len(t.skipped) for t in tallies)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
