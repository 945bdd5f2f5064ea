"""The allowed differences between torchrun and ddprun, each with the row of docs/torchrun.md that documents it."""

import dataclasses
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).absolute().parents[3] / "docs" / "torchrun.md"


@dataclasses.dataclass(frozen=True)
class Difference:
    """Facts that may differ. `fact`, `torchrun` and `ddprun` are patterns that match whole texts (see `as_text`).

    The pattern `ddprun` may refer to groups of the pattern `torchrun`.
    """

    name: str
    row: str  # first column of a row of docs/torchrun.md
    fact: str
    torchrun: str
    ddprun: str

    def explains(self, fact, of_torchrun, of_ddprun):
        values = f"{as_text(of_torchrun)}\0{as_text(of_ddprun)}"
        return bool(re.fullmatch(self.fact, fact, re.DOTALL)
                    and re.fullmatch(f"(?:{self.torchrun})\0(?:{self.ddprun})", values, re.DOTALL))


def as_text(value):
    """Returns the value of a fact as text: "(none)" for a missing fact, the joined lines for a list."""
    if value is None:
        return "(none)"
    return "\n".join(value) if isinstance(value, list) else str(value)


NONE = r"\(none\)"
ANY = r"[^\0]*"
WORKER = r"restart \d+ rank \d+: "
NODE = r"(?:node \d+: )?"

PAGE = "={60}[^\\0]+={60}"  # one or more reports

OF_EVERY_WORKER = (
    Difference("variables only of ddprun", "`DDPRUN_ROUND`, `DDPRUN_AGENT_SOCKET`, `DDPRUN_LOCAL_RANK`, `DDPRUN_NODE_ADDR`, `DDPRUN_LEASE_MS`, `DDPRUN_NOTICE_FILE`, `DDPRUN_HEARTBEAT_FILE`",
               WORKER + r"variable DDPRUN_(?:ROUND|AGENT_SOCKET|LOCAL_RANK|NODE_ADDR|LEASE_MS|NOTICE_FILE|HEARTBEAT_FILE)", NONE, r"[\w.:<>/]+"),
    Difference("both names for NCCL", "`NCCL_ASYNC_ERROR_HANDLING`",
               WORKER + "variable (?:TORCH_)?NCCL_ASYNC_ERROR_HANDLING", NONE, "[01]"),
)

OF_TEMPORARY_LOGS = (
    Difference("no empty folders", "log folders that stay empty", "folder <dir>/tmp/.*", "there", NONE),
)

OF_ONE_NODE = (
    Difference("address without a name", "`MASTER_ADDR`", WORKER + "variable MASTER_ADDR", "<host>", r"127\.0\.0\.1"),
)

OF_FAILURES = (
    Difference("failure_report.txt", "ddprun's page after the report", r"file .*/failure_report\.txt", NONE, ".+"),
    Difference("messages about a failure", "the launcher's own messages", "own messages", NONE, ".*the failure report is also in .*"),
)

OF_USAGE_ERRORS = (
    Difference("text of an error", "a usage error", "error", ".+", "ddprun: .+"),
)

OTHERS = (
    # The command line.
    Difference("status 2", "a usage error", "exit code", "1", "2"),
    Difference("usage line", "a usage error", "usage", "False", "True"),
    Difference("text of a refusal", "the launcher's own messages", "error|own messages", ANY, ".*--virtual-local-rank gives .*|"),
    Difference("messages about a missing program", "a missing program", "error", ".*", "ddprun: error: no such program: .+"),
    Difference("nothing is started", "a missing program", r"standard error of workers|report|message: failed \(exitcode: 2\).*",
               rf"said|.*can't open file.*|{PAGE}", rf"{NONE}|"),
    Difference("options after the program", "end of the options",
               rf"{WORKER}.*|exit code|standard (?:output|error of workers)|error|usage",
               rf"{NONE}|2|True|torchrun: error: ambiguous option: --signal could match [^\0]*|", ANY),
    Difference("no deprecation warning", "`--pass-local-rank`", "standard error of workers",
               r"[^\0]*FutureWarning[^\0]*?\n(rank 0[^\0]*)", r"\1"),
    # Workers.
    Difference("separate interpreter", "`--run-path`", rf"{WORKER}(?:command|open descriptors|leads its session)",
               r".*multiprocessing.*|\[.*\]|false", r".*runpy.*|\[\]|true"),
    Difference("only the script's trace", "`--run-path`",
               r"file .*/(?:error\.json|pytorch-errorfile-.*)|report|standard error of workers|message: .*",
               r"[^\0]*runpy[^\0]*|rank 0[^\0]*|said", rf"[^\0]*ValueError: deliberate[^\0]*|{NONE}"),
    Difference("messages about threads", "`OMP_NUM_THREADS`", "message: Setting OMP_NUM_THREADS .*|own messages",
               rf"said|{NONE}", rf"{NONE}|OMP_NUM_THREADS is not set: .*"),
    Difference("messages while waiting", "the launcher's own messages", "own messages", NONE, r"\d+/\d+ nodes joined, [^\n]+"),
    Difference("like the newest torchrun", "torchrun 1.13",
               rf"{WORKER}(?:leads its session|variable TORCHELASTIC_(?:SIGNALS_TO_HANDLE|USE_AGENT_STORE))|report",
               rf"false|False|{NONE}|{PAGE}", rf"true|True|SIG[A-Z,]+|{PAGE}"),
    # Output and log files.
    Difference("absolute log folder", "`--log-dir`", rf"{WORKER}variable TORCHELASTIC_ERROR_FILE",
               r"(logs/[^\0]+)", r"<dir>/work/\1"),
    Difference("prefix without files", "`--tee` without log files", "standard (?:output|error of workers)",
               r"(rank 0[^\n]*)\n(rank 1[^\n]*)", r"\[default0\]:\1\n\[default1\]:\2"),
    # Failures and stops.
    Difference("report of every failure", "a failure that is restarted", "report", r"([^\0]*)", rf"{PAGE}\n?\1"),
    Difference("messages about error files", "the launcher's own messages",
               "message: (?:no error file defined for parent|child error file .* has a new message format"
               "|skipping error code override).*", "said", NONE),
    Difference("an invalid error file is ignored", "error files of workers", "report|error|message: .*",
               r"|said|json\.decoder\.JSONDecodeError: .*", rf"{PAGE}|{NONE}|"),
    Difference("no traits of another worker's error", "`START`, `SUCCEEDED`, `FAILED`, `TERMINATED` of workers", "events",
               r'([^\0]*?), \\"errorTraits\\": \{[^}]*\}([^\0]*)', r"\1\2"),
    Difference("messages about a signal", "the launcher's own messages",
               r"own messages|message: Received \d+ death signal, shutting down workers",
               rf"said|{NONE}", rf"{NONE}|(?:2 workers did not exit within 1 s: sending SIGKILL\n)?Received \d+ death signal, shutting down workers: [^\n]+"),
    Difference("messages about SIGKILL", "the launcher's own messages",
               "message: Unable to shutdown process <pid> via 15, forcefully exiting via 9", "said", NONE),
)

ALL = OF_EVERY_WORKER + OF_TEMPORARY_LOGS + OF_ONE_NODE + OF_FAILURES + OF_USAGE_ERRORS + OTHERS


def names(differences):
    return frozenset(difference.name for difference in differences)


def judge(allowed, different):
    """Returns (unexplained differences, names that explain a difference, names that explain none)."""
    candidates = [difference for difference in ALL if difference.name in allowed]
    seen, unexplained = set(), []
    for fact, of_torchrun, of_ddprun in different:
        found = {one.name for one in candidates if one.explains(fact, of_torchrun, of_ddprun)}
        seen |= found
        if not found:
            unexplained.append((fact, of_torchrun, of_ddprun))
    return unexplained, seen, allowed - seen
