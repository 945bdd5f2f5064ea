"""Finds what programs leave on the machine: names that look() returns only after the run, and processes_left()."""

import ctypes
import os
import pathlib
import time

PR_SET_CHILD_SUBREAPER = 36
LISTEN = "0A"


def adopt_orphans():
    """Makes this process the parent of its orphaned descendants, so that descendants() finds all of them."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def descendants(root):
    """Returns {pid: name} for the live descendants of `root`."""
    children, names = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        head, _, tail = _read(f"/proc/{entry}/stat").rpartition(")")  # the name in parentheses is arbitrary
        fields = tail.split()
        if not fields:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry))
        if fields[0] not in "ZX":
            names[int(entry)] = head.partition("(")[2]
    found, queue = {}, [root]
    while queue:
        for child in children.get(queue.pop(), []):
            queue.append(child)
            if child in names:
                found[child] = names[child]
    return found


def _reap():
    """Reaps adopted children that have exited, since no other process waits for them."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def _entries(folder):
    """Returns the names in a folder of /proc; none after the process has exited."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _descriptors():
    """Returns {path: what it refers to} of the open files of all processes."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for entry in _entries(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{entry}"
            try:
                found[path] = os.readlink(path)
            except OSError:
                continue  # closed meanwhile
    return found


def _owned_sockets():
    """Returns the inodes of the sockets that any process has open, including unrelated processes."""
    sockets = (target for target in _descriptors().values() if target.startswith("socket:["))
    return {target[len("socket:[") : -1] for target in sockets}


def _sockets():
    """Returns the listening ports and abstract unix sockets that belong to no process."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                found[fields[9]] = f"port {int(fields[1].rpartition(':')[2], 16)}"
    for line in _read("/proc/net/unix").splitlines()[1:]:
        fields = line.split()
        if fields[-1].startswith("@"):
            found[fields[6]] = f"abstract socket {fields[-1]}"
    owned = _owned_sockets()
    return {name for inode, name in found.items() if inode not in owned}


def _shared_memory():
    files = {f"shared memory /dev/shm/{name}" for name in os.listdir("/dev/shm")}
    lines = _read("/proc/sysvipc/shm").splitlines()[1:]
    return files | {f"shared memory segment {line.split()[1]}" for line in lines}


def _namespaces():
    """Returns the namespaces that a mount keeps alive. Other namespaces end with their last process."""
    return {f"namespace {line.split()[4]}" for line in _read("/proc/self/mountinfo").splitlines() if " nsfs " in line}


def _network_devices():
    return {f"network device {name}" for name in os.listdir("/sys/class/net")}


def _control_groups():
    return {f"control group {path}" for path in pathlib.Path("/sys/fs/cgroup").glob("**/ddprun-fault*")}


def look():
    """Returns the names of all resources that may be left, except processes and files below the runs' directory."""
    kinds = (_sockets, _shared_memory, _namespaces, _network_devices, _control_groups)
    return set().union(*(kind() for kind in kinds))


def processes_left(deadline_s=10):
    """Returns the descendants of this process that do not exit within `deadline_s` seconds, one line each."""
    deadline = time.monotonic() + deadline_s
    while True:
        _reap()
        left = descendants(os.getpid())
        if not left or time.monotonic() > deadline:
            return [f"process {pid} ({name})" for pid, name in sorted(left.items())]
        time.sleep(0.05)
