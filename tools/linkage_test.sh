#!/usr/bin/env bash
# The programs need libc, libm and the loader alone: one file is copied to a node and runs.
# usage: linkage_test.sh PROGRAM...
set -euo pipefail

failed=0
for program in "$@"; do
  needed=$(readelf -d "$program" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
  [ -n "$needed" ] || { echo "$program: no dynamic section: is it a program?"; failed=1; }
  for library in $needed; do
    case $library in
      libc.so.6 | libm.so.6 | ld-linux*) ;;
      *) echo "$program needs $library, too"; failed=1 ;;
    esac
  done
done
exit $failed
