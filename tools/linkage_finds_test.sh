#!/usr/bin/env bash
# Checks that linkage_test.sh refuses newer symbols, other libraries and files that are not programs.
# usage: linkage_finds_test.sh LINKAGE_TEST PROGRAM
set -euo pipefail

linkage_test=$1
program=$2
failed=0

expect_refusal() { # WANTED_TEXT ARGS...
  local output
  if output=$("$linkage_test" "${@:2}" 2>&1); then
    echo "accepted: ${*:2}"
    failed=1
  elif ! grep -qE "$1" <<<"$output"; then
    printf '%s: expected a message like "%s", got:\n%s\n' "${*:2}" "$1" "$output"
    failed=1
  fi
}

# Every current program needs symbols newer than 2.3. Some symbols are of 2.17, which a comparison as text would order
# before 2.3.
expect_refusal "needs a newer glibc than 2.3: " 2.3 "$program"
expect_refusal "[a-z]@GLIBC_2.17" 2.3 "$program"
expect_refusal "needs libstdc\+\+.so.6, too" 99 /usr/bin/protoc
expect_refusal "Not an ELF file" 99 "$0"
exit $failed
