"""PyTorch's TCPStore client against our store: every operation that it has."""

import datetime
import threading
import time
import unittest

import interop
import torch
from torch.distributed import PrefixStore, TCPStore

LONG = datetime.timedelta(seconds=interop.DEADLINE_S)
SHORT = datetime.timedelta(seconds=1)  # whole seconds: older clients know no less


def needs(operation):
    """Only for clients that have `operation`; current ones have all."""
    return unittest.skipUnless(hasattr(TCPStore, operation), f"the client of {torch.__version__} has no {operation}")


class StoreClientTest(unittest.TestCase):
    def setUp(self):
        self.server = interop.StoreServer()
        self.server.__enter__()
        self.addCleanup(self.server.stop)
        self.store = self.client()

    def client(self, timeout=LONG, **kwargs):
        return TCPStore("127.0.0.1", self.server.port, is_master=False, timeout=timeout, **kwargs)

    def test_set_and_get(self):
        self.store.set("key", "value")
        self.assertEqual(self.store.get("key"), b"value")
        self.store.set("key", "")
        self.assertEqual(self.store.get("key"), b"")

    def test_large_and_binary_values(self):
        value = bytes(range(256)) * 16384  # 4 MiB
        raw = interop.RawClient(self.server.port)
        self.addCleanup(raw.close)
        raw.set(b"/big", value)
        self.assertEqual(self.store.get("big"), value)

    def test_get_waits_for_another_client(self):
        other = self.client()
        got = []
        waiting = threading.Thread(target=lambda: got.append(self.store.get("late")))
        waiting.start()
        other.set("late", "there")
        waiting.join(interop.DEADLINE_S)
        self.assertEqual(got, [b"there"])

    def test_add(self):
        self.assertEqual(self.store.add("n", 5), 5)
        self.assertEqual(self.store.add("n", -7), -2)
        self.assertEqual(self.store.get("n"), b"-2")
        self.assertEqual(self.store.add("zero", 0), 0)

    def test_add_to_text_ends_that_client_alone(self):
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
        self.store.set("a", "")
        self.store.set("b", "")
        self.store.wait(["a", "b"], LONG)

    def test_a_wait_that_times_out_leaves_the_client_usable(self):
        began = time.monotonic()
        with self.assertRaises(RuntimeError):
            self.store.wait(["missing"], SHORT)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        # Clients before 2.1 tell nobody that they gave up. Their next request tells us: from then on the key that comes
        # must not be answered, or the answer would be taken for a part of another one.
        self.assertEqual(self.store.add("n", 3), 3)
        self.client().set("missing", "here")
        self.assertEqual(self.store.add("n", 3), 6)
        self.assertEqual(self.store.get("missing"), b"here")

    def test_prefixes(self):
        PrefixStore("outer", PrefixStore("inner", self.store)).set("k", "v")
        raw = interop.RawClient(self.server.port)
        self.addCleanup(raw.close)
        self.assertEqual(raw.get(b"/inner/outer/k"), b"v")

    def test_clients_with_a_world_size_are_counted(self):
        clients = [self.client(world_size=2, wait_for_workers=True) for _ in range(2)]
        raw = interop.RawClient(self.server.port)
        self.addCleanup(raw.close)
        self.assertEqual(raw.get(b"init/"), b"2")
        del clients

    def test_dialects_meet(self):
        raw = interop.RawClient(self.server.port)
        self.addCleanup(raw.close)
        raw.set(b"/from-raw", b"1")
        self.assertEqual(self.store.get("from-raw"), b"1")
        self.store.add("shared", 1)
        self.assertEqual(raw.add(b"/shared", 1), 2)

    def test_many_clients(self):
        clients = [self.client() for _ in range(64)]
        self.assertEqual([c.add("n", 1) for c in clients], list(range(1, 65)))

    def test_a_store_that_is_gone_is_an_error(self):
        self.store.set("k", "v")
        self.server.stop()
        with self.assertRaises(RuntimeError):
            self.store.get("k")

    @needs("check")
    def test_check(self):
        self.store.set("a", "")
        self.assertTrue(self.store.check(["a"]))
        self.assertFalse(self.store.check(["a", "b"]))

    @needs("append")
    def test_append(self):
        self.store.append("k", "ab")
        self.store.append("k", "cd")
        self.assertEqual(self.store.get("k"), b"abcd")

    @needs("multi_set")
    def test_multi_set_and_get(self):
        self.store.multi_set(["a", "b"], ["1", "22"])
        self.assertEqual(self.store.multi_get(["b", "a"]), [b"22", b"1"])

    @needs("queue_push")
    def test_queues(self):
        store = self.client(use_libuv=True)
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual([store.queue_pop("q"), store.queue_pop("q")], [b"1", b"2"])
        self.assertEqual(store.queue_len("q"), 0)

    @needs("list_keys")
    def test_list_keys(self):
        self.store.set("a", "")
        self.store.set("b", "")
        self.assertEqual(sorted(self.store.list_keys()), ["a", "b"])

    @needs("barrier")
    def test_barrier(self):
        other = self.client()
        waiting = threading.Thread(target=lambda: other.barrier("b", 2, LONG))
        waiting.start()
        self.store.barrier("b", 2, LONG)
        waiting.join(interop.DEADLINE_S)
        self.assertFalse(waiting.is_alive())


if __name__ == "__main__":
    interop.main()
