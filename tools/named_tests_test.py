#!/usr/bin/env python3
"""Tests that every test named in docs/torchrun.md and docs/failure_model.md exists.

The BUILD files and sources of the whole tree are not declared as inputs. The test reads them in place, so its result is
never cached (tag "external").
"""

import pathlib
import re
import sys
import unittest

TABLE = pathlib.Path("docs/torchrun.md").resolve()
ROOT = TABLE.parent.parent
sys.path.insert(0, str(ROOT / "tests/fault"))
import faults  # noqa: E402

# `//package:target`, or `//package:target Case.Name`.
LABEL = re.compile(r"`//([\w./-]+):([\w.-]+)(?: ([\w.]+))?`")


def named_tests():
    """Yields (line, package, target, case) for every label in the last cell of a row of docs/torchrun.md."""
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if line.startswith("| ") and not line.startswith(("| name |", "| --- |")):
            for package, target, case in LABEL.findall(line.rstrip(" |").split("|")[-1]):
                yield number, package, target, case


def exists(package, target):
    build = ROOT / package / "BUILD.bazel"
    if not build.exists():
        return False
    text = build.read_text()
    # The name of a target is in its rule, in the list of a comprehension, or derived by the macro of tests/fuzz.
    names = [target, target.removesuffix("_fuzz_test")]
    return target == "all" or any(f'"{name}"' in text for name in names)


def has_case(package, case):
    words = case.split(".")
    sources = [path for path in (ROOT / package).iterdir() if path.suffix in (".cc", ".py", ".sh")]
    return any(all(word in path.read_text() for word in words) for path in sources)


class TorchrunTableTest(unittest.TestCase):
    def test_every_named_test_exists(self):
        found = list(named_tests())
        self.assertGreater(len(found), 80)
        for line, package, target, case in found:
            with self.subTest(line=line):
                self.assertTrue(exists(package, target), f"docs/torchrun.md:{line}: no such test: //{package}:{target}")
                if case:
                    self.assertTrue(has_case(package, case), f"docs/torchrun.md:{line}: no such case: {case}")

    def test_a_wrong_name_would_be_noticed(self):
        self.assertFalse(exists("launcher/config", "no_such_test"))
        self.assertFalse(exists("no/such/package", "options_test"))
        self.assertFalse(has_case("launcher/config", "NoSuchCase"))

class FailureModelTest(unittest.TestCase):
    def cases(self):
        """Returns Suite.Name of every case that tools/dev faults runs."""
        macro = re.compile(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", re.MULTILINE)
        return {".".join(case) for source in faults.sources() for case in macro.findall(source.read_text())}

    def test_every_named_case_exists(self):
        named = faults.tests_of_the_model()
        self.assertGreater(len(named), 60)
        self.assertEqual(set(named) - self.cases(), set())

    def test_no_two_programs_have_the_same_name(self):
        names = [source.name for source in faults.sources()]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
