"""A worker without PyTorch.

The worker records its environment, prints a line to each stream, and exits as its arguments specify. It accepts
unknown arguments, which stand for the arguments of a user's script.
"""

import argparse
import json
import os
import signal
import sys
import time

DEADLINE_S = 120
FACTS = os.environ["COMPARE_FACTS"]
RANK = int(os.environ["RANK"])
RESTART = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--say", action="append", default=[], help="print a line to standard output and standard error")
    parser.add_argument("--fail-rank", type=int, help="this rank fails when all ranks have started; the others wait until stopped")
    parser.add_argument("--fail-below", type=int, default=1 << 30, help="fail only while the restart count is below this")
    parser.add_argument("--exit-code", type=int, default=3)
    parser.add_argument("--die-by", help="fail by this signal instead of an exit code")
    parser.add_argument("--throw", action="store_true", help="fail with an exception")
    parser.add_argument("--error-file", help="write this to the error file before failing")
    parser.add_argument("--stay", action="store_true", help="wait until stopped")
    parser.add_argument("--catch", action="store_true", help="print the received signal and exit with 0")
    parser.add_argument("--stubborn", action="store_true", help="print the received signal and continue")
    return parser.parse_known_args()[0]


def say(stream, text):
    """Writes a line in one call, so that the lines of different ranks are not mixed."""
    os.write(stream, f"rank {RANK}: {text}\n".encode())


def open_descriptors():
    """Returns the inherited descriptors above 2."""
    opened = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the descriptor of the listing itself
        if int(name) > 2:
            opened.append(int(name))
    return sorted(opened)


def note(name, content=""):
    """Writes the file atomically, since other processes wait for it."""
    path = os.path.join(FACTS, f"{RESTART}.{RANK}.{name}")
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(path + ".part", path)


def note_facts():
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file)
    umask = os.umask(0)
    os.umask(umask)
    note("started", json.dumps({
        "env": dict(os.environ),
        "command": sys.orig_argv,
        "argv": sys.argv,
        "working directory": os.getcwd(),
        "standard input": os.readlink("/proc/self/fd/0"),
        "open descriptors": open_descriptors(),
        "blocked signals": status["SigBlk"],
        "ignored signals": status["SigIgn"],
        "umask": umask,
        "leads its session": os.getsid(0) == os.getpid(),
        "niceness": os.nice(0),
        "processors": sorted(os.sched_getaffinity(0)),
    }))


def wait_for_all():
    """Waits until every rank of this start has recorded its facts."""
    deadline = time.monotonic() + DEADLINE_S
    wanted = int(os.environ["WORLD_SIZE"])
    while sum(name.startswith(f"{RESTART}.") and name.endswith(".started") for name in os.listdir(FACTS)) < wanted:
        if time.monotonic() > deadline:
            sys.exit(f"rank {RANK}: not all of {wanted} ranks started within {DEADLINE_S} s")
        time.sleep(0.01)


def stay():
    signal.alarm(DEADLINE_S)  # exits if the launcher never stops this worker
    while True:
        signal.pause()


def fail(args):
    wait_for_all()
    if args.error_file is not None:
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as file:
            file.write(args.error_file)
    if args.throw:
        raise ValueError("deliberate")
    if args.die_by:
        os.kill(os.getpid(), getattr(signal, args.die_by))
        signal.pause()
    sys.exit(args.exit_code)


def main():
    args = parse_args()

    def on_signal(number, _):
        name = signal.Signals(number).name
        say(1, f"got {name}")
        note(name)
        if not args.stubborn:
            sys.exit(0)

    if args.catch or args.stubborn:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            signal.signal(number, on_signal)
    say(1, "standard output")
    say(2, "standard error")
    for text in args.say:
        say(1, text)
        say(2, text)
    note_facts()
    failing = args.fail_rank is not None and RESTART < args.fail_below
    if failing and RANK == args.fail_rank:
        fail(args)
    if failing or args.stay:
        stay()


if __name__ == "__main__":
    main()
