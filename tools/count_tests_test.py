#!/usr/bin/env python3
"""Tests count_tests.py with event files as Bazel writes them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("count_tests.py")

TWO_PASS_ONE_FAILS = """<testsuites><testsuite name="A">
  <testcase name="One" classname="A" status="run"/>
  <testcase name="Two" classname="A" status="run"/>
  <testcase name="Three" classname="A" status="run"><failure message="1 != 2"/></testcase>
</testsuite></testsuites>"""
TWO_PASS = """<testsuites><testsuite name="A">
  <testcase name="One" classname="A"/><testcase name="Two" classname="A"/></testsuite></testsuites>"""
ONE_SKIPPED = """<testsuites><testsuite name="A">
  <testcase name="One" classname="A"/>
  <testcase name="Off" classname="A" status="run"><skipped message=""/></testcase></testsuite></testsuites>"""


def built(label, success=True):
    return {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True} if success else {}}


class CountTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.files = 0

    def ran(self, label, status, xml=None, attempt=1, shard=1):
        outputs = []
        if xml is not None:
            self.files += 1
            path = self.folder / f"test {self.files}.xml"  # the space must survive the conversion to a URI and back
            path.write_text(xml)
            outputs = [{"name": "test.xml", "uri": path.as_uri()}]
        return {
            "id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
            "testResult": {"status": status, "testActionOutput": outputs},
        }

    def count(self, events, bazel_status=0):
        path = self.folder / "events.json"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        done = subprocess.run(
            [sys.executable, SCRIPT, path, str(bazel_status)], capture_output=True, text=True, timeout=60, check=False
        )
        lines = done.stdout.splitlines()
        return lines[-1], done.returncode, lines[:-1]

    def test_counts_several_runs_together(self):
        arguments = ["--not-run=old: its PyTorch is missing"]
        for name, events, status in (
            ("PyTorch 1", [built("//a:t"), self.ran("//a:t", "PASSED", TWO_PASS)], 0),
            ("PyTorch 2", [built("//a:t"), self.ran("//a:t", "FAILED", TWO_PASS_ONE_FAILS)], 3),
        ):
            path = self.folder / name
            path.write_text("".join(json.dumps(event) + "\n" for event in events))
            arguments += [path, str(status)]
        done = subprocess.run(
            [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout.splitlines(),
                         ["FAILED: old: its PyTorch is missing", "FAILED: PyTorch 2: //a:t A.Three", "4 passed, 2 failed"])
        self.assertEqual(done.returncode, 1)

    def test_counts_single_cases(self):
        last, status, said = self.count(
            [built("//a:t"), self.ran("//a:t", "FAILED", TWO_PASS_ONE_FAILS), built("//b:t"), self.ran("//b:t", "PASSED", TWO_PASS)],
            bazel_status=3,
        )
        self.assertEqual((last, status), ("4 passed, 1 failed", 1))
        self.assertEqual(said, ["FAILED: //a:t A.Three"])

    def test_all_passed_is_success(self):
        self.assertEqual(self.count([built("//a:t"), self.ran("//a:t", "PASSED", TWO_PASS)])[:2], ("2 passed, 0 failed", 0))

    def test_a_test_without_cases_counts_as_one(self):
        self.assertEqual(self.count([self.ran("//a:t", "PASSED")])[:2], ("1 passed, 0 failed", 0))

    def test_a_crash_that_leaves_only_passed_cases_is_a_failure(self):
        last, status, said = self.count([self.ran("//a:t", "FAILED", TWO_PASS)], bazel_status=3)
        self.assertEqual((last, status, said), ("2 passed, 1 failed", 1, ["FAILED: //a:t FAILED"]))

    def test_a_timeout_is_a_failure(self):
        self.assertEqual(self.count([self.ran("//a:t", "TIMEOUT")], 3)[:2], ("0 passed, 1 failed", 1))

    def test_a_target_that_does_not_build_is_a_failure(self):
        events = [built("//a:t"), self.ran("//a:t", "PASSED", TWO_PASS), built("//b:t", success=False)]
        last, status, said = self.count(events, bazel_status=1)
        self.assertEqual((last, status, said), ("2 passed, 1 failed", 1, ["FAILED: //b:t does not build"]))

    def test_a_package_that_cannot_be_loaded_is_a_failure(self):
        events = [{"id": {"pattern": {"pattern": ["//..."]}}, "aborted": {"reason": "LOADING_FAILURE", "description": "no such rule"}}]
        self.assertEqual(self.count(events, 1)[:2], ("0 passed, 1 failed", 1))

    def test_the_last_attempt_counts(self):
        events = [self.ran("//a:t", "FAILED", TWO_PASS_ONE_FAILS), self.ran("//a:t", "PASSED", TWO_PASS, attempt=2)]
        self.assertEqual(self.count(events)[:2], ("2 passed, 0 failed", 0))

    def test_shards_add_up(self):
        events = [self.ran("//a:t", "PASSED", TWO_PASS, shard=1), self.ran("//a:t", "PASSED", TWO_PASS, shard=2)]
        self.assertEqual(self.count(events)[:2], ("4 passed, 0 failed", 0))

    def test_a_skipped_case_is_named_and_not_counted(self):
        last, status, said = self.count([self.ran("//a:t", "PASSED", ONE_SKIPPED)])
        self.assertEqual((last, status, said), ("1 passed, 0 failed", 0, ["skipped: //a:t A.Off"]))

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(self.count([])[:2], ("0 passed, 1 failed", 1))

    def test_bazels_own_failure_is_a_failure(self):
        self.assertEqual(self.count([self.ran("//a:t", "PASSED", TWO_PASS)], 37)[:2], ("2 passed, 1 failed", 1))


if __name__ == "__main__":
    unittest.main()
