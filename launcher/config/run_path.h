// The Python program for --run-path, which runs a script in the same interpreter.
#pragma once

namespace ddprun {

// The argument of `python -c`; the script and the script's arguments come after it. The script runs as
// __main__, with sys.argv and sys.path as if it were started directly. An uncaught exception is printed as
// usual, starting at the first frame of the script. The exception is also written to TORCHELASTIC_ERROR_FILE,
// unless the script has already created that file. SystemExit keeps its meaning: sys.exit(0) is success.
// Requires Python 3.6 or later. The program contains no '$', because SubstituteLocalRank could replace it.
inline constexpr char kRunPathProgram[] = R"py(
import os, runpy, sys

def leave_error(error):
    import json, time, traceback
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    record = {"message": {
        "message": "%s: %s" % (type(error).__name__, error),
        "extraInfo": {"py_callstack": stack, "timestamp": str(int(time.time()))}}}
    try:
        with open(path, "x") as file:
            json.dump(record, file)
    except FileExistsError:
        pass
    except OSError as why:
        print("cannot write the error to %s: %s" % (path, why), file=sys.stderr)

def without_ours(trace):
    ours = {function.__code__.co_filename for function in (without_ours, runpy.run_path)}
    while trace and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace

sys.argv = sys.argv[1:]
script = sys.argv[0]
if not getattr(sys.flags, "safe_path", False):
    # With python -c, this entry is the working directory.
    sys.path[0] = os.path.dirname(os.path.realpath(script))
try:
    runpy.run_path(script, run_name="__main__")
except Exception as error:
    error.__traceback__ = without_ours(error.__traceback__)
    leave_error(error)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)
)py";

}  // namespace ddprun
