#!/usr/bin/env python3
"""Compares ddprun with torchrun, line by line: environment of workers, output, log files, report, exit code.

usage: compare_test.py [--ddprun=FILE] [--jobs=3] [--keep] [NAME ...]    (NAME: a case of cases.py; default: all cases)
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
import traceback
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).absolute().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tools")]

import cases  # noqa: E402
import differences  # noqa: E402
import jobs  # noqa: E402
import observing  # noqa: E402
import running  # noqa: E402

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
MAX_SHOWN = 600


class Verdict:
    """The result of comparing one case."""

    def __init__(self, case):
        self.case = case
        self.seconds = 0.0
        self.compared = 0  # number of facts
        self.seen = set()
        self.problems = []


def launchers(case, args):
    """Returns (torchrun, ddprun) for a case. Both use the same interpreter, as in an activated environment."""
    if case.torch == "current":
        python = pathlib.Path(args.python)
        path = f"{python.parent}:{SYSTEM_PATH}"
        torchrun = (str(python), "-m", "torch.distributed.launch") if case.program == "launch" else \
            (str(python.parent / "torchrun"),)
    else:
        path = f"/usr/bin:{SYSTEM_PATH}"
        torchrun = ("/usr/bin/python3", str(HERE.parent / "run_torchrun.py"))
    ddprun = (args.ddprun, "--pass-local-rank") if case.program == "launch" else (args.ddprun,)
    return (running.Launcher("torchrun", torchrun, path), running.Launcher("ddprun", ddprun, path))


# torchrun prints this if node 0, which hosts the store, exits before the other node has left the exit barrier.
TORCHRUNS_RACE = "Error waiting on exit barrier"
TRIES = 3


def observe_case(case, launcher, folder):
    """Runs the case. Repeats the run if torchrun printed TORCHRUNS_RACE, which is unrelated to the case."""
    for attempt in range(TRIES):
        port = jobs.free_port()
        ran = running.Run(case, launcher, folder.with_name(f"{folder.name}{attempt or ''}"), port)()
        if launcher.name != "torchrun" or not any(TORCHRUNS_RACE in text for text in ran.stderrs):
            break
    return observing.observe(ran, port)


def compare(case, args, base):
    verdict = Verdict(case)
    began = time.monotonic()
    try:
        observed = []
        for launcher in launchers(case, args):
            observed.append(observe_case(case, launcher, base / str(cases.CASES.index(case)) / launcher.name))
        unexplained, verdict.seen, missing = differences.judge(case.differs, observing.compare(*observed))
        verdict.compared = len(observed[0][0].keys() | observed[1][0].keys())
        for fact, one, other in unexplained:
            verdict.problems.append(f"{fact}\n  torchrun: {shown(one)}\n  ddprun:   {shown(other)}")
        for name in sorted(missing):
            verdict.problems.append(f"the allowed difference '{name}' was not seen: remove it from this case")
    except Exception:  # reported as a problem of this case, so that the other cases are run
        verdict.problems.append(traceback.format_exc())
    verdict.seconds = time.monotonic() - began
    return verdict


def shown(value):
    text = differences.as_text(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + f"... ({len(text)} characters)"


def command_line(case):
    return " & ".join(f"{case.program} {line}" for line in case.lines)


def print_table(verdicts):
    print("\n| case | command line | facts compared | allowed differences seen | |\n| --- | --- | --- | --- | --- |")
    for verdict in verdicts:
        line = command_line(verdict.case).replace("|", "\\|")
        also = ", ".join(sorted(verdict.seen - cases.USUAL)) or "-"
        print(f"| {verdict.case.name} | `{line}` | {verdict.compared} | {also} | {'FAILED' if verdict.problems else 'ok'} |")
    print(f"\nAlso in every case that starts workers: {', '.join(sorted(cases.USUAL)) or '-'}.")


def write_junit(path, verdicts):
    suite = xml.etree.ElementTree.Element("testsuite", name="compare", tests=str(len(verdicts)))
    for verdict in verdicts:
        element = xml.etree.ElementTree.SubElement(
            suite, "testcase", classname="compare", name=verdict.case.name, time=f"{verdict.seconds:.3f}")
        if verdict.problems:
            xml.etree.ElementTree.SubElement(element, "failure").text = "\n".join(verdict.problems)
    xml.etree.ElementTree.ElementTree(suite).write(path, encoding="utf-8")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ddprun", default=str(HERE.parents[2] / "launcher" / "ddprun"))
    parser.add_argument("--python", default=os.environ.get("DDPRUN_PYTHON"), help="interpreter with a current PyTorch")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs and print their path")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    known = {case.name for case in cases.CASES}
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"unknown cases {unknown}; known: {sorted(known)}")
    if not args.python:
        parser.error("no interpreter with a current PyTorch: give --python, or run `tools/dev interop`")
    return args


def main():
    args = parse_args()
    chosen = [case for case in cases.CASES if not args.names or case.name in args.names]
    base = pathlib.Path(tempfile.mkdtemp(prefix="compare-", dir=os.environ.get("TEST_TMPDIR")))
    verdicts, lock = {}, threading.Lock()

    def run(number):
        verdict = compare(chosen[number], args, base)
        with lock:
            verdicts[number] = verdict
            outcome = "FAILED" if verdict.problems else "ok"
            print(f"[{len(verdicts)}/{len(chosen)}] {verdict.seconds:5.1f} s  {outcome:6}  {verdict.case.name}", flush=True)
            for problem in verdict.problems:
                print("  " + problem.replace("\n", "\n  "), flush=True)

    print(f"comparing {len(chosen)} command lines, {args.jobs} in parallel", flush=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, range(len(chosen))))
    ordered = [verdicts[number] for number in range(len(chosen))]
    print_table(ordered)
    if args.keep:
        print(f"the runs are in {base}")
    else:
        shutil.rmtree(base)
    if path := os.environ.get("XML_OUTPUT_FILE"):
        write_junit(path, ordered)
    failed = sum(bool(verdict.problems) for verdict in ordered)
    print(f"{len(ordered) - failed} command lines behave as documented, {failed} do not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
