# Sourced by the scripts beside it: where the project is, how to speak, how to call Bazel.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '%s\n' "$*" >&2; }
die() {
  say "${0##*/}: $*"
  exit 1
}
die_usage() {
  say "${0##*/}: $*"
  exit 2
}

# Where downloads and other things worth keeping between checkouts go.
cache_dir() {
  if [ -n "${XDG_CACHE_HOME:-}" ]; then
    printf '%s/ddprun\n' "$XDG_CACHE_HOME"
  elif [ -n "${HOME:-}" ]; then
    printf '%s/.cache/ddprun\n' "$HOME"
  else
    die "neither HOME nor XDG_CACHE_HOME is set: give one of them"
  fi
}

# Bazel, with its own folder of outputs when DDPRUN_BAZEL_ROOT names one (or there is no HOME for its default).
# The server ends by itself after an idle while; the same start-up options everywhere, or it would start anew each time.
bazel_startup=(--max_idle_secs=900)
if [ -n "${DDPRUN_BAZEL_ROOT:-}" ]; then
  bazel_startup+=("--output_user_root=$DDPRUN_BAZEL_ROOT")
elif [ -z "${HOME:-}" ]; then
  bazel_startup+=("--output_user_root=${TMPDIR:-/tmp}/ddprun-bazel-$(id -u)")
fi

# Debian's bazel writes lines of its libraries' loggers between its own: they say nothing to us.
# Descriptor 3 is closed for the server, which lives on and would keep its reader waiting.
# Bazel's standard output stays clean; its words and its progress (a line every few seconds) go to standard error.
bazel() {
  {
    (cd "$ROOT" && command bazel "${bazel_startup[@]}" "$@" 2>&1 >&3 3>&-) |
      sed -uE '/^\[INFO|^INFO: (Build Event|Build completed)|^Starting local Bazel|There were tests whose/d' >&2
  } 3>&1
}
bazel_progress=(--show_progress --show_progress_rate_limit=5 --curses=no)
