"""Runs the tests of a script, and writes their results for tools/count_tests.py, which names the skipped cases."""

import os
import time
import unittest
import xml.etree.ElementTree as xml


class _Result(unittest.TextTestResult):
    """Also keeps each case with its outcome, in the order of their ends."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.suite = xml.Element("testsuite", name="hosts")
        self.began = time.monotonic()

    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def _add(self, test, outcome=None, text=""):
        group, _, name = test.id().rpartition(".")
        case = xml.SubElement(self.suite, "testcase", classname=group.removeprefix("__main__."), name=name,
                              time=f"{time.monotonic() - self.began:.3f}")  # fmt: skip
        if outcome:
            xml.SubElement(case, outcome, message=text.splitlines()[-1] if text else "").text = text

    def addSuccess(self, test):
        super().addSuccess(test)
        self._add(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._add(test, "failure", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self._add(test, "error", self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._add(subtest, "failure", (self.failures + self.errors)[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._add(test, "skipped", reason)


def main():
    runner = unittest.TextTestRunner(resultclass=_Result, verbosity=2)
    program = unittest.main(exit=False, testRunner=runner)
    if path := os.environ.get("XML_OUTPUT_FILE"):
        xml.ElementTree(program.result.suite).write(path, encoding="utf-8")
    raise SystemExit(0 if program.result.wasSuccessful() else 1)
