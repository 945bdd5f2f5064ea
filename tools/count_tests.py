"""Counts the results of a `bazel test` run from its build event file. Last line: `N passed, N failed`.

If a test target writes a JUnit file, as GoogleTest does, each of its cases is counted; any other target counts as one. A
target that does not build, a test that crashes, times out or fails without a failed case, and a run without tests each
count as a failure.

usage: count_tests.py [--not-run=REASON ...] EVENTS BAZEL_EXIT_STATUS [EVENTS BAZEL_EXIT_STATUS ...]

Several runs are counted together, and messages name each run by its event file. Each --not-run counts as a failure.
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree

BAZEL_OK = 0


class Outcome:
    """The results of one target: its cases, and the reasons for its failures."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = []
        self.reasons = []

    def fail(self, reason):
        self.failed += 1
        self.reasons.append(reason)


def read_cases(path):
    """Returns (passed, failed names, skipped names) of a JUnit file; None if the file cannot be read."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return None
    passed, failed, skipped = 0, [], []
    for case in root.iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped.append(name)
        else:
            passed += 1
    return passed, failed, skipped


def xml_path(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml":
            uri = urllib.parse.urlparse(output.get("uri", ""))
            return urllib.parse.unquote(uri.path) if uri.scheme == "file" else ""
    return ""


def count_run(outcome, result):
    """Adds one run (shard) of a test target to `outcome`."""
    status = result.get("status", "NO_STATUS")
    passed, failed, skipped = read_cases(xml_path(result)) or (0, [], [])
    outcome.skipped += skipped
    outcome.passed += passed
    for name in failed:
        outcome.fail(name)
    if status in ("PASSED", "FLAKY"):
        if not (passed or failed or skipped):
            outcome.passed += 1
    elif not failed:
        outcome.fail(status)


def count(events):
    """Returns the outcomes by label. Only the last attempt of a run counts. A label that does not build counts once."""
    runs, broken = {}, {}
    for event in events:
        event_id = event.get("id", {})
        if "testResult" in event and "testResult" in event_id:
            key = event_id["testResult"]
            runs[key["label"], key.get("run", 1), key.get("shard", 1)] = event["testResult"]
        elif "targetCompleted" in event_id and not event.get("completed", {}).get("success"):
            # A test that ran and failed has `success` here, because it was built.
            broken[event_id["targetCompleted"]["label"]] = "does not build"
        elif "aborted" in event:
            for kind in ("targetConfigured", "configuredLabel", "unconfiguredLabel", "pattern"):
                if kind in event_id:
                    label = event_id[kind].get("label") or " ".join(event_id[kind].get("pattern", []))
                    broken[label] = event["aborted"].get("description") or "cannot be loaded"
    outcomes = {}
    for (label, _, _), result in sorted(runs.items()):
        count_run(outcomes.setdefault(label, Outcome()), result)
    for label, reason in broken.items():
        if label not in outcomes:
            outcomes.setdefault(label, Outcome()).fail(reason)
    return outcomes


def read_events(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def report(events, bazel_status, name):
    """Prints the skipped and failed cases. Returns (passed, failed)."""
    outcomes = count(events)
    passed = sum(o.passed for o in outcomes.values())
    failed = sum(o.failed for o in outcomes.values())
    for label, outcome in sorted(outcomes.items()):
        for case in outcome.skipped:
            print(f"skipped: {name}{label} {case}")
        for reason in outcome.reasons:
            print(f"FAILED: {name}{label} {reason}")
    if not failed and bazel_status != BAZEL_OK:
        print(f"FAILED: {name}bazel exited with status {bazel_status}, see its messages above")
        failed += 1
    if not passed and not failed:
        print(f"FAILED: {name}no test was run")
        failed += 1
    return passed, failed


def main():
    missing = [arg.partition("=")[2] for arg in sys.argv[1:] if arg.startswith("--not-run=")]
    runs = [arg for arg in sys.argv[1:] if not arg.startswith("--not-run=")]
    for reason in missing:
        print(f"FAILED: {reason}")
    totals = [(0, len(missing))]
    for path, bazel_status in zip(runs[::2], runs[1::2]):
        name = f"{os.path.basename(path)}: " if len(runs) > 2 else ""
        totals.append(report(read_events(path), int(bazel_status), name))
    passed, failed = (sum(numbers) for numbers in zip(*totals))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
