# Functions and variables that the other scripts in this folder share. They source this file.
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

# Bazel's outputs are in the folder DDPRUN_BAZEL_ROOT if that is set, and in a temporary folder if HOME, which Bazel's
# default requires, is not set. Bazel's server exits after 15 idle minutes. A call with other startup options would
# restart the server.
bazel_startup=(--max_idle_secs=900)
if [ -n "${DDPRUN_BAZEL_ROOT:-}" ]; then
  bazel_startup+=("--output_user_root=$DDPRUN_BAZEL_ROOT")
elif [ -z "${HOME:-}" ]; then
  bazel_startup+=("--output_user_root=${TMPDIR:-/tmp}/ddprun-bazel-$(id -u)")
fi

# Changes when a CUDA toolkit is installed, replaced or removed: third_party/cuda/toolkit.bzl then searches again.
cuda_stamp() {
  local folder
  for folder in "${DDPRUN_CUDA:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local /usr/local/cuda* /usr "$(cache_dir)/cuda"; do
    stat -Lc '%n %Y' "$folder"/bin/nvcc "$folder"/include/{cuda,cublas_v2,nccl}.h || true
  done | sha256sum
} 2>/dev/null

# Calls Bazel. Its messages and its progress, a line every few seconds, go to standard error. Log lines of its libraries
# are dropped. The call closes descriptor 3, because Bazel's server outlives the call. If the server kept the descriptor
# open, its reader would block.
bazel() {
  {
    (cd "$ROOT" && DDPRUN_CUDA_STAMP=$(cuda_stamp) command bazel "${bazel_startup[@]}" "$@" 2>&1 >&3 3>&-) |
      sed -uE '/^\[INFO|^INFO: (Build Event|Build completed)|^Starting local Bazel|There were tests whose/d' >&2
  } 3>&1
}
bazel_progress=(--show_progress --show_progress_rate_limit=5 --curses=no)
