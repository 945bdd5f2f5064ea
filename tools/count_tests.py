"""Counts what a `bazel test` run did, from its build event file: `N passed, N failed` on the last line.

A test target that writes a JUnit file (GoogleTest does) counts by its cases, any other test as one. A target that
does not build, a test that dies, times out or says nothing of its failure, and a run of nothing count as a failure.

usage: count_tests.py EVENTS.json BAZEL_EXIT_STATUS
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree

BAZEL_OK = 0
BAZEL_TESTS_FAILED = 3


class Outcome:
    """Of one target: its cases, and in words why it failed, if it did."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = []
        self.reasons = []

    def fail(self, reason):
        self.failed += 1
        self.reasons.append(reason)


def read_cases(path):
    """(passed, failed names, skipped names) of a JUnit file; None when there is no readable one."""
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
    """Adds one run (shard) of a test target."""
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
    """Outcomes by label. The last attempt of a run counts, and a label fails to build only once."""
    runs, broken = {}, {}
    for event in events:
        event_id = event.get("id", {})
        if "testResult" in event and "testResult" in event_id:
            key = event_id["testResult"]
            runs[key["label"], key.get("run", 1), key.get("shard", 1)] = event["testResult"]
        elif "targetCompleted" in event_id and not event.get("completed", {}).get("success"):
            # `completed` of a test that ran and failed says success: it was built.
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


def main():
    path, bazel_status = sys.argv[1], int(sys.argv[2])
    outcomes = count(read_events(path))
    passed = sum(o.passed for o in outcomes.values())
    failed = sum(o.failed for o in outcomes.values())
    for label, outcome in sorted(outcomes.items()):
        for name in outcome.skipped:
            print(f"skipped: {label} {name}")
        for reason in outcome.reasons:
            print(f"FAILED: {label} {reason}")
    if not failed and bazel_status not in (BAZEL_OK,):
        print(f"FAILED: bazel ended with status {bazel_status}, see its words above")
        failed += 1
    if not passed and not failed:
        print("FAILED: no test was run")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
