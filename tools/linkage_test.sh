#!/usr/bin/env bash
# Checks that the programs need no library except glibc, and no glibc newer than README states. A program then runs on a
# node to which only its file was copied.
# usage: linkage_test.sh NEWEST_GLIBC PROGRAM...
set -euo pipefail

newest_glibc=$1
shift

# Prints the symbols of PROGRAM that need a glibc newer than $newest_glibc, for example _dl_find_object@GLIBC_2.35.
too_new() { # PROGRAM
  readelf --wide --dyn-syms "$1" | grep -oE '[[:alnum:]_]+@+GLIBC_[0-9.]+' | while read -r symbol; do
    version=${symbol##*GLIBC_}
    [ "$(printf '%s\n%s\n' "$version" "$newest_glibc" | sort -V | tail -n 1)" = "$newest_glibc" ] || echo "$symbol"
  done
}

failed=0
for program in "$@"; do
  needed=$(readelf -d "$program" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
  [ -n "$needed" ] || { echo "$program: no dynamic section: is it a program?"; failed=1; }
  for library in $needed; do
    case $library in
      libc.so.6 | libm.so.6 | ld-linux*) ;;
      libpthread.so.0 | libdl.so.2 | librt.so.1) ;;  # parts of libc since glibc 2.34, which has empty libraries of these names
      *) echo "$program needs $library, too"; failed=1 ;;
    esac
  done
  newer=$(too_new "$program")
  [ -z "$newer" ] || { echo "$program needs a newer glibc than $newest_glibc: $newer"; failed=1; }
done
exit $failed
