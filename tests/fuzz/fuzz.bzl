"""A fuzz target: the code, a test that replays its corpus, and the fuzzer itself."""

def fuzz_target(name, deps):
    """Targets for NAME_fuzz.cc, which defines LLVMFuzzerTestOneInput, and corpus/NAME.

    NAME_fuzz_test replays the corpus and mutations of it. NAME_fuzz is the fuzzer: bazel build --config=fuzz, or
    tools/dev fuzz NAME.
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
