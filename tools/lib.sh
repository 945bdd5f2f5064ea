# Sourced by the other scripts here: the project's folder, messages, calls of Bazel.
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

# The folder for downloads and other files that are kept between checkouts.
cache_dir() {
  if [ -n "${XDG_CACHE_HOME:-}" ]; then
    printf '%s/ddprun\n' "$XDG_CACHE_HOME"
  elif [ -n "${HOME:-}" ]; then
    printf '%s/.cache/ddprun\n' "$HOME"
  else
    die "neither HOME nor XDG_CACHE_HOME is set: set one of them"
  fi
}

# Bazel, with a separate folder of outputs if DDPRUN_BAZEL_ROOT names one (or there is no HOME for its default).
# The server exits after 15 idle minutes. The start-up options must be the same everywhere, or the server restarts each time.
bazel_startup=(--max_idle_secs=900)
if [ -n "${DDPRUN_BAZEL_ROOT:-}" ]; then
  bazel_startup+=("--output_user_root=$DDPRUN_BAZEL_ROOT")
elif [ -z "${HOME:-}" ]; then
  bazel_startup+=("--output_user_root=${TMPDIR:-/tmp}/ddprun-bazel-$(id -u)")
fi

# Debian's bazel mixes lines of its libraries' loggers into its output: they are dropped.
# Descriptor 3 is closed for the server, which outlives the call and would block the reader of the descriptor.
# Standard output has only Bazel's own; its messages and progress (a line every few seconds) go to standard error.
bazel() {
  {
    (cd "$ROOT" && command bazel "${bazel_startup[@]}" "$@" 2>&1 >&3 3>&-) |
      sed -uE '/^\[INFO|^INFO: (Build Event|Build completed)|^Starting local Bazel|There were tests whose/d' >&2
  } 3>&1
}
bazel_progress=(--show_progress --show_progress_rate_limit=5 --curses=no)
