#!/usr/bin/env bash
# Installs the worker library into a folder, and builds and runs programs that use only this folder.
# usage: installed_test.sh INSTALL_SH DDPRUN LIBDDPRUN_SO LIBDDPRUN_A HEADER HELLO_CC SDK_MD
set -euo pipefail
install_sh=$1 ddprun=$PWD/$2 shared=$3 static=$4 header=$5 hello=$PWD/${6%/*} page=$7
prefix=$TEST_TMPDIR/moved
failed=0

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  failed=1
}
# Runs PROGRAM with two workers under ddprun, and expects the line that rank 0 prints.
expect_fit() { # NAME PROGRAM
  local output
  output=$("$ddprun" --standalone --nproc-per-node=2 --no-python "$2" 2>"$TEST_TMPDIR/$1.err") ||
    { fail "$1: exit status $?: $(cat "$TEST_TMPDIR/$1.err")"; return; }
  [[ $output == *"2 workers: y = 3.0000 x + 1.0000"* ]] || fail "$1 printed: $output"
}

"$install_sh" "$TEST_TMPDIR/first" 0.1.0 "${header%/ddprun/*}" "$shared" "$static"
mv "$TEST_TMPDIR/first" "$prefix"  # the files refer to each other by relative paths

cmake_build() { # NAME SOURCES ARGS...
  local name=$1 sources=$2
  shift 2
  { cmake -S "$sources" -B "$TEST_TMPDIR/$name" -DCMAKE_PREFIX_PATH="$prefix" "$@" && cmake --build "$TEST_TMPDIR/$name"; } \
    >"$TEST_TMPDIR/$name.log" 2>&1 || { fail "$name: cmake: $(tail -n 20 "$TEST_TMPDIR/$name.log")"; return 1; }
}

# The first program on docs/sdk.md is the file that is built below.
awk '/^```$/ && shown { exit } shown; /^```cpp$/ { shown = 1 }' "$page" | diff - "$hello/hello.cc" >&2 || fail "docs/sdk.md shows another hello.cc"

# The program of the chapter on in-place recovery, likewise.
awk '/^## In-place recovery/ { chapter = 1 } /^```$/ && shown { exit } shown; /^```cpp$/ && chapter { shown = 1 }' "$page" |
  diff - "$hello/in_place.cc" >&2 || fail "docs/sdk.md shows another in_place.cc"

# The examples as they are, with the shared library.
cmake_build shared "$hello" && expect_fit shared "$TEST_TMPDIR/shared/hello" && expect_fit in_place "$TEST_TMPDIR/shared/in_place"

# The static library: the program does not depend on the folder.
mkdir "$TEST_TMPDIR/static_source"
cp "$hello"/*.cc "$TEST_TMPDIR/static_source"
sed 's/ddprun::ddprun/ddprun::static/' "$hello/CMakeLists.txt" >"$TEST_TMPDIR/static_source/CMakeLists.txt"
if cmake_build static "$TEST_TMPDIR/static_source"; then
  readelf -d "$TEST_TMPDIR/static/hello" | grep libddprun >&2 && fail "the static program needs libddprun.so"
  expect_fit static "$TEST_TMPDIR/static/hello"
fi

# The examples as pedantic C++17.
for file in hello in_place; do
  g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" "$hello/$file.cc" || fail "$file.cc as C++17"
done

# pkg-config, and every header alone, as C++17 and C++20, without a warning.
flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs ddprun)
# shellcheck disable=SC2086
if g++ -std=c++20 -O1 -o "$TEST_TMPDIR/by_pkg_config" "$hello/hello.cc" $flags -Wl,-rpath,"$prefix/lib"; then
  expect_fit by_pkg_config "$TEST_TMPDIR/by_pkg_config"
else
  fail "no program with the flags of pkg-config: $flags"
fi
flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs ddprun-static)
# shellcheck disable=SC2086
if g++ -std=c++20 -O1 -o "$TEST_TMPDIR/static_by_pkg_config" "$hello/hello.cc" $flags; then
  expect_fit static_by_pkg_config "$TEST_TMPDIR/static_by_pkg_config"
else
  fail "no program with the flags of pkg-config: $flags"
fi
for file in "$prefix"/include/ddprun/*.h; do
  [[ $file == */torch.h ]] && continue  # libtorch_ddp_test compiles it, with LibTorch
  for standard in c++17 c++20; do
    printf '#include <ddprun/%s>\n' "${file##*/}" |
      g++ -std=$standard -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" -x c++ - ||
      fail "${file##*/} as $standard"
  done
done

# The shared library exports nothing but the project's public symbols, and needs nothing but the C++ and C libraries.
public='^[0-9a-f]+ [TtWV] ((vtable|typeinfo|typeinfo name) for )?ddprun::(Status::|Work::|Buffer::|Communicator::|Context::|DataParallel::|Optimizer(::|$)|Make(AdamW|Sgd)\(|(Warmup|WarmupLinear|WarmupCosine|StepDecay|LinearScaling)\(|Broadcast(Parameters|Optimizer|State)\(|Recover\(|CompareParameters\(|NameOf\(|WithContext\(|ErrnoTo|operator<<\(|internal::DieOfBadStatus\()'
exported=$(nm -DC --defined-only --without-symbol-versions "$prefix/lib/libddprun.so" | grep -v ' A DDPRUN_0$')
others=$(grep -vE "$public" <<<"$exported" || true)
[ -n "$exported" ] && [ -z "$others" ] || fail "libddprun.so exports: $others"
needed=$(readelf -d "$prefix/lib/libddprun.so" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -vE '^(libstdc\+\+\.so\.6|libm\.so\.6|libgcc_s\.so\.1|libc\.so\.6|ld-linux-x86-64\.so\.2)$' || true)
[ -z "$needed" ] || fail "libddprun.so needs: $needed"
# The archive's other symbols are local, so they cannot clash with those of the program or of another library.
globals=$(nm -C --defined-only --extern-only "$prefix/lib/libddprun.a" | grep -E '^[0-9a-f]+ ' | grep -vE "$public" || true)
[ -z "$globals" ] || fail "libddprun.a defines: $globals"

# CMake refuses a version that is not compatible with the installed one, 0.1.0.
accepts() { # VERSION
  mkdir -p "$TEST_TMPDIR/version_$1"
  printf 'cmake_minimum_required(VERSION 3.16)\nproject(version CXX)\nfind_package(ddprun %s REQUIRED)\n' "$1" \
    >"$TEST_TMPDIR/version_$1/CMakeLists.txt"
  cmake -S "$TEST_TMPDIR/version_$1" -B "$TEST_TMPDIR/version_$1/build" -DCMAKE_PREFIX_PATH="$prefix" \
    >"$TEST_TMPDIR/version_$1/log" 2>&1
}
for version in 0 0.1 0.1.0; do
  accepts $version || fail "CMake refuses 0.1.0 where $version is required: $(cat "$TEST_TMPDIR/version_$version/log")"
done
for version in 0.0.1 0.1.1 0.2 1 99; do
  accepts $version && fail "CMake accepts 0.1.0 where $version is required"
done

exit $failed
