#!/usr/bin/env bash
# Builds programs with LibTorch and the installed worker library, shared and static, and runs them with two workers.
# usage: libtorch_test.sh INSTALL_SH DDPRUN LIBDDPRUN_SO LIBDDPRUN_A HEADER SUM_CC
#   TORCH_PREFIX: the folder of another LibTorch (default: Debian's). That of PyPI has GPU libraries, which it finds when the
#                 program runs, but the linker does not.
set -euo pipefail
install_sh=$1 ddprun=$PWD/$2 shared=$3 static=$4 header=$5 sources=$PWD/${6%/*}
prefix=$TEST_TMPDIR/ddprun
"$install_sh" "$prefix" 0.1.0 "${header%/ddprun/*}" "$shared" "$static"

cmake -S "$sources" -B "$TEST_TMPDIR/build" -DCMAKE_PREFIX_PATH="$prefix${TORCH_PREFIX:+;$TORCH_PREFIX}" ${TORCH_PREFIX:+-DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined} >"$TEST_TMPDIR/log" 2>&1 &&
  cmake --build "$TEST_TMPDIR/build" >>"$TEST_TMPDIR/log" 2>&1 ||
  { tail -n 30 "$TEST_TMPDIR/log" >&2; exit 1; }

failed=0
for kind in ddprun static; do
  output=$("$ddprun" --standalone --nproc-per-node=2 --no-python "$TEST_TMPDIR/build/sum_$kind" 2>"$TEST_TMPDIR/err") || {
    echo "FAILED: sum_$kind: exit status $?: $(cat "$TEST_TMPDIR/err")" >&2
    failed=1
    continue
  }
  # 64 * 64 elements, each 1 + 2.
  [[ $output == *"sum 12288"* ]] || { echo "FAILED: sum_$kind printed: $output" >&2; failed=1; }
done
for module in frozen tied empty invalid buffers different shared create_graph accumulated; do
  "$ddprun" --standalone --nproc-per-node=2 --no-python "$TEST_TMPDIR/build/modules" $module >"$TEST_TMPDIR/err" 2>&1 || {
    echo "FAILED: modules $module: exit status $?: $(cat "$TEST_TMPDIR/err")" >&2
    failed=1
  }
done
exit $failed
