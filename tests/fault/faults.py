"""Runs all fault tests repeatedly.

Prints for each test how often its fault fired, how often it passed, and the times to detection and recovery.

The last line is `N passed, N failed`. The exit status is 0 if no case failed and nothing is left on the machine.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import leftovers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "docs/failure_model.md"
# Programs with cases that need no job, in launcher/process; all other programs are in tests/fault.
OF_PROCESSES = ("stuck_warden_test.cc", "unkillable_process_test.cc")
TIMEOUT_S = 900


@dataclasses.dataclass
class Tally:
    fired: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    detection_us: list = dataclasses.field(default_factory=list)
    recovery_us: list = dataclasses.field(default_factory=list)


def parse_args():
    parser = argparse.ArgumentParser(prog="tools/dev faults", description=__doc__)
    parser.add_argument("--times", type=int, default=1, metavar="N", help="how often each case runs (default 1)")
    parser.add_argument("--only", default="", metavar="REGEX", help="run only cases whose Suite.Name contains a match")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="test programs that run in parallel (default 1)")
    parser.add_argument("--keep", metavar="DIR", help="keep the output of all runs in DIR, not only of failed ones")
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)  # given by tools/faults
    options = parser.parse_args()
    if options.times < 1 or options.jobs < 1:
        parser.error("--times and --jobs must be at least 1")
    return options


def environment(program, directory):
    """Returns the environment variables that Bazel sets for a test."""
    return {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "TEST_SRCDIR": f"{program}.runfiles",
        "TEST_WORKSPACE": "ddprun",
        "TEST_TMPDIR": str(directory),
    }


def cases_of(program, directory):
    """Returns the names of the program's cases as GoogleTest lists them: Suite.Name, with the parameter if any."""
    listing = subprocess.run(
        [program, "--gtest_list_tests"], env=environment(program, directory), check=True, capture_output=True, text=True
    ).stdout
    names, suite = [], ""
    for line in listing.splitlines():
        name = line.partition("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def stray_files(directory):
    """Returns the files that the programs wrote outside the directories of the tests and the log directories."""
    allowed = re.compile(r"fault\w{6}|torchelastic_.*|log\.txt|result\.json")
    stray = [path for path in directory.iterdir() if not allowed.fullmatch(path.name)]
    hosts = directory.glob("fault*/node*/*")
    return stray + [path for path in hosts if not path.name.startswith("torchelastic_")]


def sources():
    """Returns the sources of the programs that contain the cases."""
    return [*sorted(ROOT.glob("tests/fault/*_test.cc")), *(ROOT / "launcher/process" / name for name in OF_PROCESSES)]


def tests_of_the_model():
    """Returns the Suite.Name of every test that the tables of docs/failure_model.md name."""
    rows = [line for line in MODEL.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return sorted({name for row in rows for name in re.findall(r"`(\w+Test\.\w+)`", row)})


class Catalogue:
    """All runs and their results.

    Threads: any thread may call run(). The attributes may be read when all runs have ended.
    """

    def __init__(self, root, keep):
        self.tallies = {}
        self.left = []
        self._root = root
        self._keep = keep
        self._lock = threading.Lock()

    def run(self, program, cases, number):
        """Runs `cases` of `program` once; returns a line with the result."""
        directory = self._root / f"{program.name}.{number}"
        directory.mkdir()
        result = directory / "result.json"
        log = directory / "log.txt"
        start = time.monotonic()
        with log.open("wb") as out:
            try:
                status = subprocess.run(
                    [program, f"--gtest_filter={':'.join(cases)}", f"--gtest_output=json:{result}"],
                    env=environment(program, directory), cwd=f"{program}.runfiles/ddprun",
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=TIMEOUT_S, check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                status = "timed out"
        failed = self._count(cases, result, status)
        with self._lock:
            self.left += [f"file {path}" for path in stray_files(directory)]
        line = f"{program.name} {number}: {len(cases) - len(failed)} of {len(cases)} in {time.monotonic() - start:.1f} s"
        if failed:
            line += f"; FAILED {', '.join(failed)}: see {log}"
        elif not self._keep:
            shutil.rmtree(directory)
        return line

    def _count(self, cases, result, status):
        seen = {}
        if result.exists():
            for suite in json.loads(result.read_text(encoding="utf-8"))["testsuites"]:
                for case in suite["testsuite"]:
                    seen[f"{case['classname']}.{case['name']}"] = case
        failed = []
        with self._lock:
            for name in cases:
                tally = self.tallies.setdefault(name, Tally())
                case = seen.get(name, {"failures": f"no result: {status}"})
                good = "failures" not in case
                skipped = case.get("result") == "SKIPPED"
                tally.skipped += skipped
                tally.passed += good and not skipped
                tally.failed += not good
                # Cases that record no "fired" property cannot pass unless their fault fired.
                tally.fired += "fired" in case or (good and not skipped)
                for field, values in (("detection_us", tally.detection_us), ("recovery_us", tally.recovery_us)):
                    if good and field in case:
                        values.append(int(case[field]))
                if not good:
                    failed.append(name)
        return failed


def spread(values):
    """Returns "MEDIAN / MAXIMUM" in milliseconds; empty without values."""
    return f"{statistics.median(values) / 1000:.0f} / {max(values) / 1000:.0f}" if values else ""


def print_summary(tallies):
    print("| fault | fired | passed | detection p50 / max, ms | recovery p50 / max, ms |")
    print("| --- | --- | --- | --- | --- |")
    for name, tally in sorted(tallies.items()):
        passed = f"{tally.passed}" + (f" ({tally.skipped} skipped)" if tally.skipped else "")
        print(f"| {name} | {tally.fired} | {passed} | {spread(tally.detection_us)} | {spread(tally.recovery_us)} |")


def main():
    options = parse_args()
    leftovers.adopt_orphans()
    before = leftovers.look()
    root = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="faults-"))
    root.mkdir(parents=True, exist_ok=True)
    catalogue = Catalogue(root, options.keep)

    chosen, known = {}, []
    for source in sources():
        program = pathlib.Path(options.bin, source.relative_to(ROOT).with_suffix(""))
        names = cases_of(program, root)
        known += names
        cases = [name for name in names if re.search(options.only, name)]
        if cases:
            chosen[program] = cases
    missing = [name for name in tests_of_the_model() if not any(name in case for case in known)]
    if missing:
        print(f"faults: {MODEL} names tests that do not exist: {', '.join(missing)}", file=sys.stderr)
        return 1
    if not chosen:
        print(f"faults: no case matches --only={options.only}", file=sys.stderr)
        return 2

    runs = [(program, cases, number) for number in range(1, options.times + 1) for program, cases in chosen.items()]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done, line in enumerate(pool.map(lambda run: catalogue.run(*run), runs), 1):
            print(f"[{done}/{len(runs)}] {line}", file=sys.stderr, flush=True)

    left = catalogue.left + leftovers.processes_left() + sorted(leftovers.look() - before)
    print_summary(catalogue.tallies)
    for what in left:
        print(f"LEFT: {what}")
    if not os.listdir(root):
        root.rmdir()
    passed = sum(tally.passed for tally in catalogue.tallies.values())
    failed = sum(tally.failed for tally in catalogue.tallies.values())
    print(f"left on the machine: {f'{len(left)}, see above' if left else 'nothing'}; load {os.getloadavg()[0]:.1f}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
