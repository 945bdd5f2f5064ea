// The small Python program behind --run-path: runs a script in the interpreter that is already there.
#pragma once

namespace ddprun {

// For `python -c`, with the script and its arguments behind it. The script runs as __main__, with sys.argv
// and sys.path as if it had been started directly. An exception that it does not catch is printed as usual,
// from its first frame in the script on, and is also left in the file that TORCHELASTIC_ERROR_FILE names,
// unless the script has left something there itself. SystemExit keeps its meaning, so sys.exit(0) is success.
// Needs nothing but Python 3.6; holds no '$'.
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
        print("cannot leave the error in %s: %s" % (path, why), file=sys.stderr)

def without_ours(trace):
    ours = {function.__code__.co_filename for function in (without_ours, runpy.run_path)}
    while trace and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace

sys.argv = sys.argv[1:]
script = sys.argv[0]
if not getattr(sys.flags, "safe_path", False):
    # In the place of the working directory, which python -c has there.
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
