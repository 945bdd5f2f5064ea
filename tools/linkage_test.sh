#!/usr/bin/env bash
# The programs need only libc, libm and the loader, and no newer glibc than README states: one file is copied to a node and
# runs.
# usage: linkage_test.sh PROGRAM...
set -euo pipefail

readonly newest_glibc=2.34

# Versions of glibc that the symbols of a program need, newer than $newest_glibc: "_dl_find_object@GLIBC_2.35".
too_new() { # PROGRAM
  readelf --wide --dyn-syms "$1" | grep -oE '[[:alnum:]_]+@+GLIBC_[0-9.]+' | while read -r symbol; do
    version=${symbol##*GLIBC_}
    [ "$(printf '%s\n%s\n' "$version" "$newest_glibc" | sort -V | tail -n 1)" = "$newest_glibc" ] || echo "$symbol"
  done
}

failed=0
for program in "$@"; do
  needed=$(readelf -d "$program" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
  [ -n "$needed" ] || { echo "$program: no dynamic section: not a program"; failed=1; }
  for library in $needed; do
    case $library in
      libc.so.6 | libm.so.6 | ld-linux*) ;;
      *) echo "$program also needs $library"; failed=1 ;;
    esac
  done
  newer=$(too_new "$program")
  [ -z "$newer" ] || { echo "$program needs a newer glibc than $newest_glibc for: $newer"; failed=1; }
done
exit $failed
