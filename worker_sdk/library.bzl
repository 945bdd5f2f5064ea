"""The library that programs link: libddprun.so and libddprun.a, from the position-independent objects of `deps`.

Both export the symbols that the public headers mark with DDPRUN_EXPORT, and no others. What the objects need of archives,
such as OpenSSL's SHA-256, becomes a part of the library; of shared libraries, both need libstdc++, libm and libc.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _impl(ctx):
    objects = []
    flags = []
    everything = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    for part in everything.linking_context.linker_inputs.to_list():
        flags += part.user_link_flags
        for library in part.libraries:
            objects += library.pic_objects
    archives = [flag for flag in flags if flag.startswith("-l:") and flag.endswith(".a")]
    compiler = find_cpp_toolchain(ctx).compiler_executable
    soname = "libddprun.so." + ctx.attr.abi

    shared = ctx.actions.declare_file(soname)
    ctx.actions.run_shell(
        outputs = [shared],
        inputs = objects + [ctx.file.exports],
        command = "{cc} -shared -o {out} {flags} {objects} {archives} -lstdc++ -lm -pthread".format(
            cc = compiler,
            out = shared.path,
            flags = " ".join([
                "-Wl,-soname," + soname,
                "-Wl,--version-script=" + ctx.file.exports.path,
                "-Wl,--exclude-libs,ALL,--gc-sections,--as-needed",
                "-Wl,-z,defs,-z,now,-z,relro",
            ] + [flag for flag in ctx.fragments.cpp.linkopts if flag.startswith("-fsanitize=")]),
            objects = " ".join([o.path for o in objects]),
            archives = " ".join(archives),
        ),
        mnemonic = "SharedLibrary",
        use_default_shell_env = True,
    )

    # One object, whose other symbols are local. Its groups of sections are dissolved, because the linker would otherwise
    # discard a group of which the program has a copy, together with the local symbols that this object uses. Unique symbols
    # (variables of inline functions) become weak first, because objcopy leaves unique ones global; so it does common symbols,
    # which -d turns into ordinary ones.
    static = ctx.actions.declare_file("libddprun.a")
    ctx.actions.run_shell(
        outputs = [static],
        inputs = objects + [shared],
        command = """
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{cc} -nostdlib -r -o "$work/ddprun.o" -Wl,--force-group-allocation,-d {objects} {archives}
nm -D --defined-only {shared} | sed -nE 's/.* [TWVBDRu] ([^@]+).*/\\1/p' > "$work/exports"
nm --defined-only "$work/ddprun.o" | awk '$2 == "u" {{ print $3 }}' > "$work/unique"
objcopy --weaken-symbols="$work/unique" "$work/ddprun.o"
objcopy --keep-global-symbols="$work/exports" "$work/ddprun.o"
ar rcsD {out} "$work/ddprun.o"
""".format(
            cc = compiler,
            objects = " ".join([o.path for o in objects]),
            archives = " ".join(archives),
            shared = shared.path,
            out = static.path,
        ),
        mnemonic = "StaticLibrary",
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(files = depset([shared, static])),
        OutputGroupInfo(shared = depset([shared]), static = depset([static])),
    ]

worker_library = rule(
    implementation = _impl,
    attrs = {
        "abi": attr.string(doc = "The number in the shared library's name: a change breaks programs that were linked before."),
        "deps": attr.label_list(providers = [CcInfo]),
        "exports": attr.label(allow_single_file = True),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
