#!/usr/bin/env python3
"""Tests parts of the comparison with synthetic texts: parsing, normalization, allowed and unexplained differences."""

import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import console  # noqa: E402
import differences  # noqa: E402
import observing  # noqa: E402

REPORT = """============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_08:14:52
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 22799)
============================================================
"""

TORCHRUN = f"""rank 0: working
W1121 21:33:01.975000 625 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 652 closing signal SIGTERM
W1121 21:33:01.975000 625 torch/distributed/run.py:982] *****************************************
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
{REPORT}"""

DDPRUN = f"""rank 0: working
[ddprun host] Sending process 99 closing signal SIGTERM

{REPORT}rank 1 (local rank 1) on host ended after 92 ms
    | a line of the worker
[ddprun host] the failure report is also in /tmp/x
"""


def rows_of_document():
    """Returns {first column: second column} of the four-column tables in docs/torchrun.md."""
    rows = {}
    for line in differences.DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if line.startswith("| ") and len(cells) == 6:  # four cells, and an empty one before and after them
            rows[cells[1]] = cells[2]
    return rows


class ConsoleTest(unittest.TestCase):
    def test_torchrun(self):
        parts = console.take_apart(TORCHRUN)
        self.assertEqual(parts.workers, ["rank 0: working"])
        self.assertEqual(parts.messages, ["Sending process 652 closing signal SIGTERM"])
        self.assertEqual(parts.report, REPORT.strip().split("\n"))
        self.assertEqual(parts.errors, [])

    def test_ddprun(self):
        parts = console.take_apart(DDPRUN)
        self.assertEqual(parts.workers, ["rank 0: working"])
        self.assertEqual(parts.report, REPORT.strip().split("\n"))
        self.assertEqual(parts.messages, [
            "Sending process 99 closing signal SIGTERM", "rank 1 (local rank 1) on host ended after 92 ms",
            "| a line of the worker", "the failure report is also in /tmp/x"])

    def test_events_between_other_lines(self):
        event = '{"name": "torchelastic.worker.status.START", "source": "WORKER"}'
        parts = console.take_apart(DDPRUN.replace("    | a line", event + "\n    | a line"))
        self.assertEqual(parts.events, [{"name": "torchelastic.worker.status.START", "source": "WORKER"}])
        self.assertEqual(parts.messages[1:3], ["rank 1 (local rank 1) on host ended after 92 ms", "| a line of the worker"])

    def test_the_traceback_of_a_worker_is_worker_output(self):
        text = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    f()\nValueError: x\n'
        self.assertEqual(console.take_apart(text).workers, text.strip().split("\n"))

    def test_errors_of_the_launcher(self):
        parts = console.take_apart("usage: torchrun [-h]\n    [--nnodes NNODES]\ntorchrun: error: unrecognized arguments: --x\n")
        self.assertTrue(parts.has_usage)
        self.assertEqual(parts.errors, ["torchrun: error: unrecognized arguments: --x"])
        text = 'Traceback (most recent call last):\n  File "/x/torch/distributed/run.py", line 1, in run\n    f()\nValueError: two\n'
        self.assertEqual(console.take_apart(text).errors, ["ValueError: two"])


class NormalizerTest(unittest.TestCase):
    def setUp(self):
        self.normal = observing.Normalizer("/tmp/base/7/ddprun", 12345)

    def test_values_that_differ_in_each_run_are_normalized(self):
        self.assertEqual(
            self.normal.text("/tmp/base/7/ddprun/tmp/torchelastic_ab12_Z9x/0b6c7d3e-1111-2222-3333-444455556666_a-b_c-d1/attempt_0/1"),
            "<dir>/tmp/<random>/<uuid>_<random>/attempt_0/1")
        self.assertEqual(self.normal.text("job_7_AbCd1234/attempt_1/x"), "job_7_<random>/attempt_1/x")
        self.assertEqual(self.normal.text("(pid: 17) at 2026-11-21_08:14:52, port 12345"), "(pid: <pid>) at <time>, port <port>")
        self.assertEqual(self.normal.text("  host      : localhost"), "  host      : <host>")

    def test_the_width_of_a_report_does_not_depend_on_its_pids(self):
        def report(pid, width):
            text = f"{'=' * width}\ntrain.py FAILED\n{'-' * width}\n  traceback : received by PID {pid}\n{'=' * width}\n"
            return self.normal.reports(console.take_apart(text).report)

        self.assertEqual(report(999, 33), report(1000, 34))
        self.assertEqual(len(report(999, 33)), 5)
        self.assertNotEqual(report(999, 33), report(1000, 33))

    def test_other_values_are_kept(self):
        for text in ("exitcode  : 3", "attempt_1/0/stdout.log", "rank 1: out", "connect to localhost", "/opt/localhost/x"):
            self.assertEqual(self.normal.text(text), text)
        self.assertEqual(self.normal.variable("MASTER_PORT", "12345"), "<port>")
        self.assertEqual(self.normal.variable("MASTER_PORT", "54321"), "<free port>")
        self.assertEqual(self.normal.variable("MASTER_PORT", "0"), "0")

    def test_the_order_within_a_rank_is_kept(self):
        self.assertEqual(self.normal.lines(["rank 1: a", "rank 0: x", "rank 1: b", "rank 0: a"]),
                         ["rank 0: x", "rank 0: a", "rank 1: a", "rank 1: b"])


class JudgeTest(unittest.TestCase):
    def judge(self, different, allowed):
        return differences.judge(frozenset(allowed), different)

    def test_equal_runs_have_no_differences(self):
        run = ({"exit code": 0}, {"a message"})
        self.assertEqual(observing.compare(run, run), [])

    def test_every_kind_of_difference_is_found(self):
        torchrun = ({"exit code": 1, "only torchrun": "x"}, {"dropped", "both"})
        ddprun = ({"exit code": 0, "only ddprun": "y"}, {"both", "more"})
        self.assertEqual(observing.compare(torchrun, ddprun), [
            ("exit code", 1, 0), ("only ddprun", None, "y"), ("only torchrun", "x", None),
            ("message: dropped", "said", None), ("own messages", None, ["more"])])

    def test_an_unexplained_difference_is_a_problem(self):
        different = [("exit code", 1, 2)]
        self.assertEqual(self.judge(different, [])[0], different)
        self.assertEqual(self.judge(different, ["usage line"])[0], different)
        self.assertEqual(self.judge(different, ["status 2"]), ([], {"status 2"}, frozenset()))
        self.assertEqual(self.judge([("exit code", 2, 1)], ["status 2"])[0], [("exit code", 2, 1)])

    def test_an_unused_name_is_a_problem(self):
        self.assertEqual(self.judge([], ["status 2"]), ([], set(), frozenset(["status 2"])))

    def test_a_pattern_can_refer_to_torchruns_value(self):
        fact = "restart 0 rank 1: variable TORCHELASTIC_ERROR_FILE"
        name = "absolute log folder"
        self.assertEqual(self.judge([(fact, "logs/a/error.json", "<dir>/work/logs/a/error.json")], [name])[1], {name})
        self.assertEqual(self.judge([(fact, "logs/a/error.json", "<dir>/work/logs/b/error.json")], [name])[1], set())


class TablesTest(unittest.TestCase):
    def test_cases_name_known_differences_and_all_differences_are_used(self):
        known = {difference.name for difference in differences.ALL}
        used = set().union(*(case.differs for case in cases.CASES))
        self.assertEqual(used, known)
        self.assertEqual(len(known), len(differences.ALL))
        self.assertEqual(len({case.name for case in cases.CASES}), len(cases.CASES))

    def test_every_difference_has_a_row_in_the_document(self):
        rows = rows_of_document()
        for difference in differences.ALL:
            self.assertIn(difference.row, rows, difference.name)
            self.assertIn(rows[difference.row], ("better", "not"), f"{difference.name}: {difference.row} is documented as equal")

    def test_the_document_states_the_number_of_compared_lines(self):
        said = re.search(r"(\d+) command lines", differences.DOCUMENT.read_text(encoding="utf-8"))
        self.assertIsNotNone(said, "docs/torchrun.md does not state the number of compared command lines")
        self.assertEqual(int(said.group(1)), len(cases.CASES))


if __name__ == "__main__":
    unittest.main(verbosity=2)
