#!/usr/bin/env bash
# Installs the worker library: copies the headers and both libraries, and writes the files for CMake and pkg-config.
# usage: install.sh PREFIX VERSION HEADERS SHARED STATIC
#   HEADERS: the folder that has ddprun/status.h
set -euo pipefail
[ $# -eq 5 ] || { echo "install.sh: expected 5 arguments, got $#" >&2; exit 2; }
prefix=$1 version=$2 headers=$3 shared=$4 static=$5
templates=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
soname=${shared##*/}

install -d "$prefix/include/ddprun" "$prefix/lib/cmake/ddprun" "$prefix/lib/pkgconfig"
install -m 644 "$headers"/ddprun/*.h "$prefix/include/ddprun"

# Renamed into place, so that running programs keep the file that they have mapped.
strip --strip-unneeded -o "$prefix/lib/.$soname.new" "$shared"
mv "$prefix/lib/.$soname.new" "$prefix/lib/$soname"
chmod 644 "$prefix/lib/$soname"
ln -sfn "$soname" "$prefix/lib/libddprun.so"
strip --strip-debug -o "$prefix/lib/.libddprun.a.new" "$static"
mv "$prefix/lib/.libddprun.a.new" "$prefix/lib/libddprun.a"
chmod 644 "$prefix/lib/libddprun.a"

fill() { # TEMPLATE FILE
  sed -e "s/@VERSION@/$version/g" -e "s/@SONAME@/$soname/g" "$templates/$1" >"$2"
}
fill ddprunConfig.cmake "$prefix/lib/cmake/ddprun/ddprunConfig.cmake"
fill ddprunConfigVersion.cmake "$prefix/lib/cmake/ddprun/ddprunConfigVersion.cmake"
fill ddprun.pc "$prefix/lib/pkgconfig/ddprun.pc"
fill ddprun-static.pc "$prefix/lib/pkgconfig/ddprun-static.pc"
