"""Splits a launcher's standard error into lines of workers, failure reports and the launcher's own messages."""

import dataclasses
import json
import re

# torchrun: "W1121 21:27:34.109000 27326 torch/distributed/run.py:982] text"; 1.13: "WARNING:torch...:text".
LOG_LINE = re.compile(r"(?:[DIWEC]\d{4} [\d:.]+ \d+ \S+:\d+\] |(?:INFO|WARNING|ERROR):[\w.]+:)(.*)")
DDPRUN_LINE = re.compile(r"\[ddprun [^\]]+\] (.*)")
# Messages of PyTorch's store about peers that have disconnected. Whether they appear depends on timing.
NOISE = re.compile(r"\[?[WE]\d{4,8} .*(?:TCPStore|socket)\.cpp|Exception raised from |frame #\d+: |The node '.*' has failed to ")
LAUNCHER_FRAME = re.compile(r'  File "[^"]*(?:/torchrun|/run_torchrun\.py|torch/distributed/(?:run|launch)\.py|<frozen runpy>)"')
ERROR_SENTENCE = re.compile(r"[\w.]+: error: |ddprun: ")
EVENT = '{"name": "torchelastic.'
RULE = re.compile(r"={20,60}$")
# Exceptions that end torchrun after it has printed the cause in the report or in a message.
KNOWN_ENDS = re.compile(r"torch\.distributed\.elastic\.multiprocessing\.\S*(ChildFailedError|SignalException)\b")


@dataclasses.dataclass
class Console:
    workers: list = dataclasses.field(default_factory=list)  # lines of workers
    report: list = dataclasses.field(default_factory=list)  # lines of failure reports
    messages: list = dataclasses.field(default_factory=list)  # the launcher's own messages, without time and location
    errors: list = dataclasses.field(default_factory=list)  # fatal errors of the launcher itself
    events: list = dataclasses.field(default_factory=list)  # decoded events of --event-log-handler=console
    has_usage: bool = False


def take_apart(text):
    """Parses the whole text that a launcher and its workers wrote to standard error."""
    console = Console()
    lines = [line for line in text.split("\n") if line.strip() and not NOISE.match(line)]
    # Events may appear between any other lines.
    console.events = [json.loads(line) for line in lines if line.startswith(EVENT)]
    lines = [line for line in lines if not line.startswith(EVENT)]
    at = 0
    while at < len(lines):
        line = lines[at]
        log, own = LOG_LINE.match(line), DDPRUN_LINE.match(line)
        if RULE.match(line) and at + 1 < len(lines) and lines[at + 1].endswith(" FAILED"):
            at = _report(console, lines, at)
        elif line.startswith("Traceback ") and at + 1 < len(lines) and LAUNCHER_FRAME.match(lines[at + 1]):
            at = _traceback(console, lines, at)
        elif line.startswith("usage: "):
            at = _usage(console, lines, at)
        elif log or own:
            message = (log or own).group(1).strip()
            if message.strip("*") and not NOISE.match(message):
                console.messages.append(message)
            at += 1
        elif ERROR_SENTENCE.match(line):
            console.errors.append(line)
            at += 1
        else:
            console.workers.append(line)
            at += 1
    return console


def _report(console, lines, at):
    """Reads the report at lines[at]; returns the index of the next line.

    Lines that ddprun prints below the report, up to its next message, count as messages.
    """
    end = next((i for i in range(at + 1, len(lines)) if RULE.match(lines[i]) and i > at + 1), len(lines) - 1)
    console.report += lines[at:end + 1]
    at = end + 1
    while at < len(lines) and not LOG_LINE.match(lines[at]) and not DDPRUN_LINE.match(lines[at]):
        console.messages.append(lines[at].strip())
        at += 1
    return at


def _traceback(console, lines, at):
    at += 1
    while at < len(lines) and lines[at].startswith("  "):
        at += 1
    if at < len(lines):
        if not KNOWN_ENDS.match(lines[at]):
            console.errors.append(lines[at])
        at += 1
    if at < len(lines) and lines[at].startswith(("During handling of the above", "The above exception was")):
        at += 1
    return at


def _usage(console, lines, at):
    console.has_usage = True
    while at < len(lines) and not ERROR_SENTENCE.match(lines[at]):
        at += 1
    return at
