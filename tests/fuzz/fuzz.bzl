"""A macro for fuzz targets."""

def fuzz_target(name, deps):
    """Declares the targets for NAME_fuzz.cc, which defines LLVMFuzzerTestOneInput, and for corpus/NAME.

    NAME_fuzz_test replays the corpus and mutations of it. NAME_fuzz is the fuzzer, which requires the build
    option --config=fuzz; `tools/dev fuzz NAME` builds and runs it.
    """
    native.cc_library(
        name = name + "_fuzz_target",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        deps = deps,
    )
    native.cc_test(
        name = name + "_fuzz_test",
        size = "small",
        srcs = ["replay_test.cc"],
        data = native.glob(["corpus/" + name + "/*"]),
        local_defines = ["CORPUS=\\\"tests/fuzz/corpus/" + name + "\\\""],
        deps = [
            ":" + name + "_fuzz_target",
            "//third_party:gtest",
        ],
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_fuzz_target"],
    )
