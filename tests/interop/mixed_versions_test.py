"""Tests clients and worker groups of several PyTorch versions that use one store at the same time.

The versions are those of interop.pythons(). A run with 1.13.1, 2.1.2 and a current version covers every
dialect of the protocol. If there are fewer than three interpreters, some are used several times.
"""

import itertools
import json
import re
import subprocess
import unittest

import interop
import launched
import torch
import torch_worker

PYTHONS = list(itertools.islice(itertools.cycle(interop.pythons()), max(3, len(interop.pythons()))))


class Peer:
    """A store_peer.py process. ask() and answer() are separate, so that several peers can wait at the same time."""

    def __init__(self, python, port, world_size):
        self.process = subprocess.Popen([python, interop.path_of("store_peer.py"), str(port), str(world_size)],
                                        env=launched.environment(python),
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, *request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self):
        """Reads the next answer. Store operations time out, so the peer eventually answers or exits."""
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"{self.process.args} exited with {self.process.wait(interop.DEADLINE_S)}")
        return json.loads(line)

    def do(self, *request):
        self.ask(*request)
        return self.answer()

    def close(self):
        self.process.stdin.close()  # the peer exits at the end of its input
        try:
            self.process.wait(interop.DEADLINE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.port = cls.enterClassContext(launched.Job()).store()
        cls.peers = []
        for python in PYTHONS:
            cls.peers.append(Peer(python, cls.port, len(PYTHONS)))
            cls.addClassCleanup(cls.peers[-1].close)
        print("peers:", [peer.answer() for peer in cls.peers], flush=True)
        cls.raw = interop.RawClient(cls.port)
        cls.addClassCleanup(cls.raw.close)

    def together(self, *request):
        """Sends the same request to all peers, then returns their answers."""
        for peer in self.peers:
            peer.ask(*request)
        return [peer.answer() for peer in self.peers]

    def able(self, operation):
        return [peer for peer in self.peers if peer.do("has", operation)]

    def test_clients_of_all_versions_are_counted_together(self):
        self.assertEqual(self.raw.get(b"init/"), str(len(PYTHONS)).encode())

    def test_a_value_set_by_one_is_visible_to_all(self):
        for i, peer in enumerate(self.peers):
            peer.do("set", f"shared {i}", f"of {i}")
        for i in range(len(self.peers)):
            self.assertEqual(self.together("get", f"shared {i}"), [f"of {i}"] * len(self.peers))

    def test_no_addition_is_lost(self):
        times = 200
        seen = self.together("add_many", "sum", times)
        self.assertEqual(sorted(itertools.chain(*seen)), list(range(1, times * len(self.peers) + 1)))
        for mine in seen:
            self.assertEqual(mine, sorted(mine))

    def test_exactly_one_wins_a_compare_set(self):
        for i, peer in enumerate(self.peers):
            peer.ask("compare_set", "leader", "", str(i))
        winners = [peer.answer() for peer in self.peers]
        self.assertEqual(len(set(winners)), 1, winners)
        self.assertIn(winners[0], [str(i) for i in range(len(self.peers))])
        self.assertEqual(self.together("get", "leader"), winners)

    def test_blocking_gets_are_woken_by_other_versions(self):
        turns, size = 50, len(self.peers)
        for i, peer in enumerate(self.peers):
            peer.ask("ring", "turn ", i, size, turns)
        self.raw.set(b"/turn 0", b"0")
        self.assertEqual([peer.answer() for peer in self.peers], [None] * size)
        self.assertEqual(self.peers[0].do("get", f"turn {turns * size}"), str(turns * size))

    def test_one_key_wakes_all(self):
        for peer in self.peers:
            peer.ask("get", "late")
        self.raw.set(b"/late", b"there")
        self.assertEqual([peer.answer() for peer in self.peers], ["there"] * len(self.peers))

    def test_a_deleted_key_is_missing_for_all(self):
        before = self.peers[0].do("num_keys")
        for peer in self.peers:
            self.raw.set(b"/short", b"")
            self.assertEqual(self.together("num_keys"), [before + 1] * len(self.peers))
            self.assertTrue(peer.do("delete_key", "short"))
            self.assertEqual(self.together("num_keys"), [before] * len(self.peers))

    def test_a_client_stays_in_sync_after_a_timed_out_wait(self):
        answers = self.together("wait_ms", "never before", 1000)
        self.assertTrue(all("error" in answer for answer in answers), answers)
        self.assertEqual(sorted(self.together("add", "after", 1)), list(range(1, len(self.peers) + 1)))
        self.raw.set(b"/never before", b"now")  # clients must get no answer to a wait that has timed out
        self.assertEqual(self.together("add", "after", 0), [len(self.peers)] * len(self.peers))
        self.assertEqual(self.together("get", "never before"), ["now"] * len(self.peers))

    def test_append_and_multi_keys_of_clients_that_support_them(self):
        for peer in self.able("append"):
            peer.do("append", "appended", "x" * 3000)  # more than the client sends in one piece
            peer.do("multi_set", ["many 1", "many 2"], ["1", "2"])
        writers = len(self.able("append"))
        if writers:
            self.assertEqual(self.together("get", "appended"), ["x" * 3000 * writers] * len(self.peers))
            self.assertEqual(self.together("get", "many 2"), ["2"] * len(self.peers))


class GroupsTest(unittest.TestCase):
    WORLD_SIZE = 2

    def test_groups_train_through_one_store_at_the_same_time(self):
        with launched.Job() as job:
            port = job.store()
            groups = [self.start(job, port, number, python) for number, python in enumerate(PYTHONS)]
            for group in groups:
                output = job.finish(*group)
                lines = re.findall(r"^rank=(\d) world_size=2 sum=3 weight=(\S+)$", output, re.MULTILINE)
                self.assertEqual(sorted(rank for rank, _ in lines), ["0", "1"], output)
                for _, weight in lines:
                    self.assertAlmostEqual(float(weight), self.expected(), places=5)

    def start(self, job, port, number, python):
        """Starts the workers of a group.

        With env://, one store can serve a group of each version, since the keys of versions up to 2.1 begin
        with the attempt. Groups of the same version need separate prefixes.
        """
        if len(interop.pythons()) > 1:
            script = [interop.path_of("torch_worker.py")]
        else:
            script = [interop.path_of("prefixed_worker.py"), f"group {number}"]
        variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(self.WORLD_SIZE),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(number),
        }
        return [job.start(python, *script, python=python, RANK=str(rank), **variables) for rank in range(self.WORLD_SIZE)]

    def expected(self):
        """Returns the weight after the same step in one process. Equal seeds give equal numbers in all versions."""
        inputs = torch.cat([torch_worker.make_inputs(rank) for rank in range(self.WORLD_SIZE)])
        return torch_worker.step(torch_worker.make_model(seed=0), inputs)


if __name__ == "__main__":
    interop.main()
