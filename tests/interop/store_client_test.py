"""Tests every operation of PyTorch's TCPStore client with ddprun's store.

The tests in Operations also run with PyTorch's own server, to check that they expect PyTorch's behaviour.
"""

import datetime
import threading
import time
import unittest

import interop
import torch
from torch.distributed import PrefixStore, TCPStore

LONG = datetime.timedelta(seconds=interop.DEADLINE_S)
SHORT = datetime.timedelta(seconds=1)  # older clients support only whole seconds

# The public attributes of TCPStore in all known versions. `libuvBackend` describes a server in the client's process.
KNOWN = set("""add append barrier check clone compare_set delete_key get has_extended_api host libuvBackend list_keys multi_get multi_set
               num_keys port queue_len queue_pop queue_push set set_timeout timeout wait""".split())


def needs(operation):
    """Skips the test for clients without `operation`. Current clients have every operation."""
    return unittest.skipUnless(hasattr(TCPStore, operation), f"the client of {torch.__version__} has no {operation}")


def in_another_thread(work):
    """Starts `work` in a thread. Returns a function that waits for `work`, then returns its result or raises its error."""
    done = {}

    def run():
        try:
            done["result"] = work()
        except Exception as error:
            done["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join():
        thread.join(interop.DEADLINE_S)
        if "error" in done:
            raise done["error"]
        return done["result"]

    return join


class Operations:
    """The common tests. Before each test, a subclass starts a server and sets `self.port` and `self.store`."""

    def client(self, timeout=LONG, **kwargs):
        return TCPStore("127.0.0.1", self.port, is_master=False, timeout=timeout, **kwargs)

    def test_set_and_get(self):
        self.store.set("key", "value")
        self.assertEqual(self.store.get("key"), b"value")
        self.store.set("key", "")
        self.assertEqual(self.store.get("key"), b"")
        self.store.set("", "of the empty key")
        self.assertEqual(self.store.get(""), b"of the empty key")

    def test_get_waits_for_another_client(self):
        other = self.client()
        value = in_another_thread(lambda: other.get("late"))
        self.store.set("late", "there")
        self.assertEqual(value(), b"there")

    def test_add(self):
        self.assertEqual(self.store.add("n", 5), 5)
        self.assertEqual(self.store.add("n", -7), -2)
        self.assertEqual(self.store.get("n"), b"-2")
        self.assertEqual(self.store.add("zero", 0), 0)
        self.assertEqual(self.store.get("zero"), b"0")

    def test_add_to_a_number_as_text(self):
        self.store.set("n", " 12 and more")
        self.assertEqual(self.store.add("n", 1), 13)

    def test_add_to_text_only_disconnects_that_client(self):
        self.store.set("text", "abc")
        other = self.client()
        with self.assertRaises(RuntimeError):
            other.add("text", 1)
        self.assertEqual(self.store.get("text"), b"abc")

    def test_compare_set(self):
        self.assertEqual(self.store.compare_set("c", "x", "y"), b"x")  # absent: nothing is stored
        self.assertEqual(self.store.compare_set("c", "", "first"), b"first")
        self.assertEqual(self.store.compare_set("c", "wrong", "second"), b"first")
        self.assertEqual(self.store.compare_set("c", "first", "second"), b"second")
        self.assertEqual(self.store.get("c"), b"second")

    def test_delete_and_count(self):
        before = self.store.num_keys()
        self.store.set("k", "v")
        self.assertEqual(self.store.num_keys(), before + 1)
        self.assertTrue(self.store.delete_key("k"))
        self.assertFalse(self.store.delete_key("k"))
        self.assertEqual(self.store.num_keys(), before)

    def test_wait(self):
        self.store.wait([])
        self.store.set("a", "")
        self.store.wait(["a"])
        other = self.client()
        waiting = in_another_thread(lambda: other.wait(["a", "b", "c"], LONG))
        self.store.set("b", "")
        self.store.set("c", "")
        self.assertIsNone(waiting())

    def test_a_wait_that_times_out(self):
        began = time.monotonic()
        with self.assertRaises(RuntimeError):
            self.store.wait(["missing"], SHORT)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)

    def test_the_timeout_of_all_operations(self):
        self.assertEqual(self.store.timeout, LONG)
        self.store.set_timeout(SHORT)
        self.assertEqual(self.store.timeout, SHORT)
        with self.assertRaises(RuntimeError):
            self.store.get("missing")

    def test_address(self):
        self.assertEqual((self.store.host, self.store.port), ("127.0.0.1", self.port))

    def test_prefixes(self):
        outer = PrefixStore("outer", PrefixStore("inner", self.store))
        outer.set("k", "v")
        self.assertEqual(self.store.get("inner/outer/k"), b"v")
        self.assertEqual(PrefixStore("inner", self.store).get("outer/k"), b"v")
        self.assertEqual(PrefixStore("inner/outer", self.store).get("k"), b"v")

    def test_every_operation_below_a_prefix(self):
        one, two = PrefixStore("one", self.store), PrefixStore("two", self.store)
        before = one.num_keys()
        one.set("k", "v")
        two.set("k", "w")
        self.assertEqual((one.get("k"), two.get("k")), (b"v", b"w"))
        self.assertEqual((one.add("n", 1), one.add("n", 1), two.add("n", 1)), (1, 2, 1))
        self.assertEqual(one.compare_set("k", "v", "u"), b"u")
        one.wait(["k", "n"], LONG)
        self.assertEqual(two.num_keys(), before + 4)
        self.assertTrue(two.delete_key("n"))
        self.assertEqual(one.get("n"), b"2")
        one.set_timeout(LONG)
        self.assertEqual(one.timeout, LONG)
        if hasattr(one, "append"):
            one.append("k", "+")
            one.multi_set(["a", "b"], ["1", "2"])
            self.assertEqual(one.multi_get(["k", "a", "b"]), [b"u+", b"1", b"2"])
            self.assertEqual(two.get("k"), b"w")
        if hasattr(one, "check"):
            self.assertTrue(one.check(["a", "b"]))
            self.assertFalse(two.check(["a"]))

    def test_many_clients(self):
        clients = [self.client() for _ in range(64)]
        self.assertEqual([c.add("n", 1) for c in clients], list(range(1, 65)))

    @needs("check")
    def test_check(self):
        self.store.set("a", "")
        self.assertTrue(self.store.check(["a"]))
        self.assertTrue(self.store.check([]))
        self.assertFalse(self.store.check(["a", "b"]))

    @needs("append")
    def test_append(self):
        # The first request is APPEND. Its opcode in 2.1 is that of DELETE_KEY in earlier versions.
        self.store.append("k", "ab")
        self.store.append("k", "cd")
        self.assertEqual(self.store.get("k"), b"abcd")
        other = self.client()
        value = in_another_thread(lambda: other.get("late"))
        long = "x" * 100_000  # the client sends it in many pieces
        self.store.append("late", long)
        self.assertEqual(value(), long.encode())

    @needs("multi_set")
    def test_multi_set_and_get(self):
        self.store.multi_set(["a", "b"], ["1", "22"])
        self.assertEqual(self.store.multi_get(["b", "a"]), [b"22", b"1"])
        other = self.client()
        values = in_another_thread(lambda: other.multi_get(["a", "late"]))
        self.store.multi_set(["late"], [""])
        self.assertEqual(values(), [b"1", b""])

    @needs("has_extended_api")
    def test_the_client_reports_the_extended_api(self):
        self.assertTrue(self.store.has_extended_api())

    @needs("queue_push")
    def test_queues(self):
        store = self.client(use_libuv=True)
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual([store.queue_pop("q"), store.queue_pop("q")], [b"1", b"2"])
        self.assertEqual(store.queue_len("q"), 0)
        other = self.client(use_libuv=True)
        item = in_another_thread(lambda: other.queue_pop("q"))
        store.queue_push("q", "3")
        self.assertEqual(item(), b"3")

    @needs("list_keys")
    def test_list_keys(self):
        self.store.set("a", "")
        self.store.set("b", "")
        self.assertEqual(sorted(self.store.list_keys()), ["a", "b"])

    @needs("barrier")
    def test_barrier(self):
        other = self.client()
        waiting = in_another_thread(lambda: other.barrier("b", 2, LONG))
        self.store.barrier("b", 2, LONG)
        self.assertIsNone(waiting())

    @needs("clone")
    def test_a_clone_is_an_independent_client(self):
        clone = self.store.clone()
        value = in_another_thread(lambda: clone.get("late"))
        self.store.set("late", "there")  # while the clone waits
        self.assertEqual(value(), b"there")

    @needs("clone")
    def test_clients_that_request_another_backend(self):
        for use_libuv in (False, True):
            store = self.client(use_libuv=use_libuv)
            self.assertEqual(store.add("n", 1), 1 + use_libuv)


class StoreClientTest(Operations, unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(interop.StoreServer())
        self.port = self.server.port
        self.store = self.client()

    def raw(self):
        raw = interop.RawClient(self.port)
        self.addCleanup(raw.close)
        return raw

    def test_every_operation_has_a_test(self):
        """Fails for a PyTorch with new operations."""
        self.assertEqual({name for name in dir(TCPStore) if not name.startswith("_")} - KNOWN, set())

    def test_large_and_binary_values(self):
        value = bytes(range(256)) * 16384  # 4 MiB
        self.raw().set(b"/big", value)
        self.assertEqual(self.store.get("big"), value)

    def test_delete_key_as_the_first_request(self):
        raw = self.raw()
        raw.set(b"/k", b"")
        self.assertEqual(raw.get(b"/k"), b"")
        self.assertTrue(self.store.delete_key("k"))

    def test_keys_begin_with_a_slash(self):
        PrefixStore("outer", PrefixStore("inner", self.store)).set("k", "v")
        self.store.num_keys()
        self.assertEqual(self.raw().get(b"/inner/outer/k"), b"v")

    def test_clients_with_a_world_size_are_counted(self):
        clients = [self.client(world_size=2, wait_for_workers=True) for _ in range(2)]
        self.assertEqual(self.raw().get(b"init/"), b"2")
        del clients

    def test_clients_of_different_dialects_share_the_store(self):
        raw = self.raw()
        raw.set(b"/from-raw", b"1")
        self.assertEqual(self.store.get("from-raw"), b"1")
        self.store.add("shared", 1)
        self.assertEqual(raw.add(b"/shared", 1), 2)

    def test_a_client_stays_in_sync_after_a_timed_out_wait(self):
        with self.assertRaises(RuntimeError):
            self.store.wait(["missing"], SHORT)
        # Clients before 2.1 do not cancel a wait that has timed out; their next request cancels it implicitly.
        # If the store answered the wait later, the client would read that answer as part of another answer.
        self.assertEqual(self.store.add("n", 3), 3)
        self.client().set("missing", "here")
        self.assertEqual(self.store.add("n", 3), 6)
        self.assertEqual(self.store.get("missing"), b"here")

    def test_a_lost_store_is_an_error(self):
        self.store.set("k", "v")
        self.server.stop()
        with self.assertRaises(RuntimeError):
            self.store.get("k")


class PyTorchServerTest(Operations, unittest.TestCase):
    """The same tests with PyTorch's own server."""

    def setUp(self):
        self.server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LONG)
        self.port = self.server.port
        self.store = self.client()

    def tearDown(self):
        # Deletes the client first: in PyTorch 1.13, a reset connection terminates the client's process.
        del self.store
        del self.server


if __name__ == "__main__":
    interop.main()
