"""Targets of the GPU stand-in. They need the headers of a CUDA toolkit; without one the libraries are empty."""

load("@cuda//:defs.bzl", "HAVE_CUDA")

def stand_in_library(name, srcs, hdrs = [], deps = [], copts = [], **kwargs):
    """A cc_library for tests, with all its functions in each program that links it."""
    native.cc_library(
        name = name,
        testonly = True,
        srcs = srcs if HAVE_CUDA else [],
        hdrs = hdrs,
        # Thread-local variables in the block of the thread itself: ThreadSanitizer does not know that glibc frees those of
        # a library that was opened at run time when the thread has ended.
        copts = copts + ["-ftls-model=initial-exec"],
        linkopts = ["-ldl", "-pthread"],
        alwayslink = True,
        deps = deps + ["@cuda//:headers"],
        **kwargs
    )

def stand_in_shared_library(name, soname, deps, exports = "//worker_sdk/testing/gpu:exports.lds", **kwargs):
    """The shared library `name` with the given soname. It is never unloaded, because its threads are never joined."""
    native.cc_binary(
        name = name,
        testonly = True,
        linkopts = [
            "-Wl,-soname," + soname,
            "-Wl,-z,nodelete",
            "-Wl,--version-script,$(location %s)" % exports,
        ],
        linkshared = True,
        deps = deps + [exports, "//os:older_glibc"],
        **kwargs
    )

def stand_in_test(name, srcs, deps, **kwargs):
    """A test of the stand-in. Without a toolkit it tests that the program has no function of the stand-in."""
    native.cc_test(
        name = name,
        srcs = srcs if HAVE_CUDA else ["//worker_sdk/testing/gpu:without_toolkit_test.cc"],
        deps = deps + ["//third_party:gtest", "@cuda//:headers"],
        **kwargs
    )
