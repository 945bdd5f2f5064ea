#!/usr/bin/env bash
# Builds examples/libtorch_ddp with the installed worker library and LibTorch, and compares its losses with those of
# DistributedDataParallel in Python; then kills a worker, and expects the losses of an undisturbed run.
# usage: libtorch_ddp_test.sh INSTALL_SH DDPRUN LIBDDPRUN_SO LIBDDPRUN_A HEADER DDP_CC
#   TORCH_PREFIX: the folder of another LibTorch (default: Debian's). That of PyPI has GPU libraries, which it finds when the
#                 program runs, but the linker does not.
#   DDPRUN_PYTHON: an interpreter with the same version of PyTorch (default: Debian's)
set -euo pipefail
install_sh=$1 ddprun=$PWD/$2 shared=$3 static=$4 header=$5 sources=$PWD/${6%/*}
prefix=$TEST_TMPDIR/ddprun
python=${DDPRUN_PYTHON:-/usr/bin/python3}
failed=0

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  failed=1
}
# Runs a program with two workers; its output is in $TEST_TMPDIR/NAME.
run() { # NAME PROGRAM...
  local name=$1
  shift
  "$ddprun" --standalone --nproc-per-node=2 --no-python "$@" >"$TEST_TMPDIR/$name" 2>"$TEST_TMPDIR/$name.err" ||
    fail "$name: exit status $?: $(tail -n 20 "$TEST_TMPDIR/$name.err")"
}

"$install_sh" "$prefix" 0.1.0 "${header%/ddprun/*}" "$shared" "$static"
{ cmake -S "$sources" -B "$TEST_TMPDIR/build" -DCMAKE_PREFIX_PATH="$prefix${TORCH_PREFIX:+;$TORCH_PREFIX}" ${TORCH_PREFIX:+-DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined} \
  -DCMAKE_BUILD_TYPE=Release && cmake --build "$TEST_TMPDIR/build"; } >"$TEST_TMPDIR/log" 2>&1 || {
  tail -n 30 "$TEST_TMPDIR/log" >&2
  exit 1
}
ddp=$TEST_TMPDIR/build/ddp

for argument in --steps=12x --steps= --steps=0 --steps=99999999999999999999 --accumulate=x --steps --other=1; do
  status=0
  message=$("$ddp" "$argument" 2>&1) || status=$?
  [[ $status == 2 && $message == "ddp: bad argument: $argument "* ]] || fail "$argument: exit status $status: $message"
done

# The same losses as in Python, within 1e-5 over 100 steps, with one backward pass per step and with two.
for passes in 1 2; do
  run "cpp.$passes" "$ddp" --steps=100 --accumulate=$passes
  run "python.$passes" "$python" "$sources/ddp.py" 100 $passes
  paste <(grep '^step' "$TEST_TMPDIR/cpp.$passes") <(grep '^step' "$TEST_TMPDIR/python.$passes") | awk -v passes=$passes '
    { n++; d = $4 - $8; if (d < 0) d = -d; if (d > worst) worst = d; if ($2 != $6) bad = 1; last = $4; if (n == 1) first = $4 }
    END {
      printf "%d backward passes: %d steps, losses %s to %s, difference at most %.2g\n", passes, n, first, last, worst
      exit !(n == 100 && !bad && worst <= 1e-5 && last < first / 2)
    }' >&2 || fail "the losses differ from those in Python, or do not fall"
done

# Killed in the middle: the next round resumes from the snapshot, and repeats the losses of the undisturbed run.
steps=400
run undisturbed "$ddp" --steps=$steps
: >"$TEST_TMPDIR/killed"  # exists when tail opens it
"$ddprun" --standalone --nproc-per-node=2 --max-restarts=1 --no-python "$ddp" --steps=$steps \
  --snapshot="$TEST_TMPDIR/snapshot" >"$TEST_TMPDIR/killed" 2>"$TEST_TMPDIR/killed.err" &
job=$!
grep -q -m 1 '^step 25 ' < <(timeout 100 tail -n +1 -f --pid=$job "$TEST_TMPDIR/killed") || fail "the job has not reached step 25"
victim=$(pgrep -n -f "^$ddp ") && kill -9 "$victim" || fail "no worker to kill"
wait $job || fail "the job did not survive the kill: $(tail -n 20 "$TEST_TMPDIR/killed.err")"
grep -q '^resumed after step [1-9]' "$TEST_TMPDIR/killed" || fail "the job has not resumed from a snapshot"
# The last line of each step; the steps after the snapshot were done twice.
grep '^step' "$TEST_TMPDIR/killed" | sort -s -n -k 2,2 | awk '$2 != step && NR > 1 { print line } { step = $2; line = $0 } END { print line }' |
  diff - <(grep '^step' "$TEST_TMPDIR/undisturbed") >&2 || fail "the losses differ from those of the undisturbed run"
exit $failed
