"""Represents the observable results of a run as facts {name: value}. Values that differ in each run are normalized."""

import itertools
import json
import re
import socket

import console
import running

PID = re.compile(r"(pid:? |PID |process )\d+")
REPORT = re.compile(r"^={20,}$.*?^={20,}$", re.DOTALL | re.MULTILINE)
RULER = re.compile(r"^(?:={20,}|-{20,})$", re.MULTILINE)
TIME = re.compile(r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RUN_FOLDER = re.compile(r"([\w.<>-]+)_[\w-]{8}(?=/attempt_|$)")
TEMPORARY = re.compile(r"torchelastic_\w{6,8}(?=/|$)|(?<=watchdog_timer_)[\w<>-]+|(?<=pytorch-errorfile-)\w+")
RANK = re.compile(r"rank (\d+)")
LAST_PORT = 65535
MAX_WIDTH = 60  # of a ruler


def _with_common_rulers(report):
    """Gives the rulers of a report MAX_WIDTH characters if they are as long as the report's longest line.

    That line can contain the name of the host or a pid, whose lengths differ.
    """
    width = min(MAX_WIDTH, max(map(len, RULER.sub("", report[0]).split("\n"))))
    return RULER.sub(lambda ruler: ruler[0][0] * MAX_WIDTH if len(ruler[0]) == width else ruler[0], report[0])


class Normalizer:
    """Replaces values that differ in each run, such as the folder, the host and the port of one run."""

    def __init__(self, folder, port):
        # getfqdn() is `localhost` on some hosts. That word is replaced only where a host name is expected.
        self.names = {socket.gethostname(), socket.getfqdn()}
        names = "|".join(map(re.escape, sorted(self.names - {"localhost"})))
        # A name inside a path or a word is not a host name.
        self.host = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])")
        self.host_line = re.compile(rf"(  host      : )(?:{names}|localhost)$")
        self.folder = str(folder)
        self.port = str(port)

    def text(self, text):
        text = text.replace(self.folder, "<dir>")
        text = UUID.sub("<uuid>", text)
        text = TEMPORARY.sub("<random>", text)
        text = RUN_FOLDER.sub(r"\1_<random>", text)
        text = TIME.sub("<time>", text)
        text = PID.sub(r"\1<pid>", text)
        text = self.host_line.sub(r"\1<host>", text)
        return self.host.sub("<host>", text).replace(self.port, "<port>")

    def reports(self, lines):
        """Returns the normalized lines of failure reports."""
        return [self.text(line) for line in REPORT.sub(_with_common_rulers, "\n".join(lines)).splitlines()]

    def variable(self, name, value):
        if name == "MASTER_PORT" and value != self.port and value.isdigit() and 0 < int(value) <= LAST_PORT:
            return "<free port>"
        if name == "MASTER_ADDR" and value in self.names:
            return "<host>"
        return self.text(value)

    def events(self, events):
        """Returns the events as text without pids and times. Consecutive events of workers are sorted by rank."""
        texts = []
        for _, group in itertools.groupby(events, key=lambda event: (event["name"], event["source"])):
            for event in sorted(group, key=lambda event: event["metadata"]["global_rank"] or 0):
                texts.append(self._event(event))
        return texts

    def _event(self, event):
        details = event["metadata"]
        more = json.loads(details["metadata"])
        if more.get("worker_pid", [None]) != [None]:
            more["worker_pid"] = "<pid>"
        details["metadata"] = more
        details["hostname"] = "<host>" if details["hostname"] in self.names else details["hostname"]
        for name in ("worker_id", "duration_ms", "total_run_time"):
            details[name] = None if details[name] is None else f"<{name}>"
        return self.text(json.dumps(event, sort_keys=True))

    def lines(self, lines):
        """Returns the normalized lines, sorted by rank, because the order of lines of different ranks is unspecified.

        The lines of each rank keep their order.
        """
        def rank(line):
            found = RANK.search(line)
            return int(found.group(1)) if found else -1
        return sorted((self.text(line) for line in lines), key=rank)


def _worker_facts(facts_folder, normal):
    facts = {}
    for path in sorted(facts_folder.glob("*.started")):
        restart, rank, _ = path.name.split(".")
        who = f"restart {restart} rank {rank}"
        noted = json.loads(path.read_text(encoding="utf-8"))
        for name, value in noted.pop("env").items():
            facts[f"{who}: variable {name}"] = normal.variable(name, value)
        for name, value in noted.items():
            facts[f"{who}: {name}"] = normal.text(json.dumps(value))
    return facts


def _log_facts(folder, normal):
    """Returns facts about all new files and folders below the working, temporary and home directories."""
    facts = {}
    for top in ("work", "tmp", "home"):
        for path in sorted((folder / top).rglob("*")):
            name = normal.text(str(path))
            if _is_ours(path.relative_to(folder / top)):
                continue
            if path.is_dir():
                facts[f"folder {name}"] = "there"
            elif not path.is_file():
                facts[f"special file {name}"] = "there"
            elif path.suffix == ".json":
                facts[f"file {name}"] = _json_text(path, normal)
            else:
                facts[f"file {name}"] = normal.lines(path.read_text(errors="replace").replace("\0", "").splitlines())
    return facts


def _is_ours(path):
    """Whether the file is one of the initial scripts, or was left by PyTorch's compiler."""
    return (running.WORKERS / path).exists() or path.parts[0].startswith("torchinductor_")


def _json_text(path, normal):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return normal.text(path.read_text(errors="replace"))
    return normal.text(re.sub(r'("timestamp": "?)\d{9,}', r"\1<time>", json.dumps(value, sort_keys=True)))


def observe(ran, port):
    """Returns (facts, messages): the facts of a run, and the set of the launchers' own messages."""
    normal = Normalizer(ran.folder, port)
    facts = _worker_facts(ran.folder / "facts", normal)
    facts.update(_log_facts(ran.folder, normal))
    messages = set()
    for node, exit_code in enumerate(ran.exit_codes):
        where = f"node {node}: " if len(ran.exit_codes) > 1 else ""
        errors = console.take_apart(ran.stderrs[node])
        facts[f"{where}exit code"] = exit_code
        facts[f"{where}standard output"] = normal.lines(ran.stdouts[node].splitlines())
        facts[f"{where}standard error of workers"] = normal.lines(errors.workers)
        facts[f"{where}report"] = normal.reports(errors.report)
        facts[f"{where}usage"] = errors.has_usage
        facts[f"{where}events"] = normal.events(errors.events)
        facts[f"{where}error"] = [normal.text(line) for line in errors.errors]
        messages |= {normal.text(message) for message in errors.messages}
    facts["left behind"] = [normal.text(command) for command in ran.left_behind]
    return facts, messages


def compare(of_torchrun, of_ddprun):
    """Returns [(fact, torchrun's value, ddprun's value)] for facts that differ. The value of a missing fact is None.

    Each message that only torchrun prints is one fact. All messages that only ddprun prints form one fact.
    """
    (facts, messages), (other_facts, other_messages) = of_torchrun, of_ddprun
    different = [(name, facts.get(name), other_facts.get(name))
                 for name in sorted(facts.keys() | other_facts.keys()) if facts.get(name) != other_facts.get(name)]
    different += [(f"message: {text}", "said", None) for text in sorted(messages - other_messages)]
    if own := sorted(other_messages - messages):
        different.append(("own messages", None, own))
    return different
