"""Runs what proves the GPU support (docs/decisions/0014-gpu.md, "Proof"). Last line: `N passed, N failed, N skipped`.

1. build     kernels compile for GPUs; the tables of functions resolve against the toolkit's libraries
2. stand-in  the ordinary tests of the GPU code, on the stand-in for CUDA's driver, NCCL and cuBLAS. No GPU is used
3. device    on the GPUs of this machine: kernels and products against the CPU, collectives, the data-parallel step, training,
             and PyTorch workers. Without a GPU, each is skipped by name

Each layer is reported by itself. Case counts are those of GoogleTest; a program counts as one.
"""

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM_LIMIT_S = 600

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
    "//tests/train:train_device_test",
]
# Programs of GoogleTest that skip the cases for which the machine has too few GPUs.
ON_DEVICE = [
    ("kernels of the SDK", "//worker_sdk/device:array_ops_test"),
    ("kernels of the model", "//examples/train/gpu:model_kernels_test"),
    ("the model", "//examples/train/gpu:gpu_gpt_test"),
    ("connecting with a GPU", "//worker_sdk:context_gpu_test"),
    ("collectives through NCCL", "//worker_sdk/comm/nccl:nccl_group_test"),
    ("optimizers", "//worker_sdk/optim:optimizer_gpu_test"),
    ("the data-parallel step", "//worker_sdk/ddp:data_parallel_gpu_test"),
]
PROGRAMS = ["//examples/train", "//launcher:ddprun"]


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


def run_gtest(tally, bin_dir, name, label, environment):
    path = f"{bin_dir}/{label[2:].replace(':', '/')}"
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.xml"
        code, output = run([path, f"--gtest_output=xml:{report}"], {**environment, "TEST_TMPDIR": folder})
        try:
            cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
        except (OSError, xml.etree.ElementTree.ParseError):
            return tally.fail(f"{name} ({label})", f"exit code {code}\n{output[-4000:]}")
    before = len(tally.failed)
    for case in cases:
        what = f"{name}: {case.get('classname')}.{case.get('name')}"
        if (failure := case.find("failure")) is not None:
            tally.fail(what, failure.get("message", ""))
        elif (skipped := case.find("skipped")) is not None:
            tally.skip(what, skipped.get("message", "").strip().split("\n")[-1])
        elif case.get("status") == "run":
            tally.passed += 1
    if code != 0 and len(tally.failed) == before:
        tally.fail(f"{name} ({label})", f"exit code {code}\n{output[-4000:]}")


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
            {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}, refusal="Duplicate GPU|ncclInvalidUsage")


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
                  "train --device=cuda with 2 ranks on one GPU", "PyTorch workers with NCCL under ddprun"]
        for name in names:
            tally.skip(name, reason)
        return "Nothing ran on a GPU."
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DDPRUN_STAND_IN_")}
    for name, label in ON_DEVICE:
        run_gtest(tally, bin_dir, name, label, environment)
    run_train(tally, bin_dir, len(gpus), environment)
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
