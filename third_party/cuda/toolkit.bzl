"""Finds the CUDA toolkit of this machine. Nothing is downloaded, and without a toolkit everything builds, too.

The repository has:
  //:headers   cuda.h, cublas_v2.h, nccl.h and what they include, with DDPRUN_HAVE_CUDA=1; without a toolkit an empty library
  //:compiler  nvcc and cuda.h, as inputs of actions: if they are replaced, the actions run again
  //:defs.bzl  HAVE_CUDA; CUDA_VERSION, that of cuda.h (13000 is 13.0; 0 without a toolkit); NVCC, the path of the compiler

$DDPRUN_CUDA is the folder of a toolkit, or `none`. Otherwise the first complete toolkit of _candidates() is used. One with
a compiler but without the headers of cuBLAS or NCCL is skipped, and a line says so: the GPU backend needs all of them.
"""

_HEADERS = ["cuda.h", "cublas_v2.h", "nccl.h"]
_SYSTEM = ["/usr/include", "/usr/local/include"]  # the C++ compiler finds headers here by itself

def _folder_version(folder):  # of /usr/local/cuda-13.0: [13, 0]
    return [int(part) for part in folder.basename[len("cuda-"):].split(".") if part.isdigit()]

def _candidates(ctx):
    env = ctx.os.environ
    cache = env.get("XDG_CACHE_HOME") or env.get("HOME", "") + "/.cache"
    versions = [p for p in ctx.path("/usr/local").readdir() if p.basename.startswith("cuda-")]
    newest_first = [str(p) for p in sorted(versions, key = _folder_version, reverse = True)]
    folders = [env.get("CUDA_HOME"), env.get("CUDA_PATH"), "/usr/local/cuda"] + newest_first
    return [f.rstrip("/") for f in folders + ["/usr", cache + "/ddprun/cuda"] if f]  # /usr: nvidia-cuda-toolkit of Debian

def _cuda_version(ctx, root):
    return int(ctx.read(root + "/include/cuda.h").split("#define CUDA_VERSION ")[1].split("\n")[0])

def _missing(ctx, root):
    """Returns the first of the files that the toolkit lacks, or None."""
    if not ctx.path(root + "/bin/nvcc").exists:
        return "bin/nvcc"
    for header in _HEADERS:
        folders = [root + "/include"] + (_SYSTEM if header == "nccl.h" else [])
        if not [f for f in folders if ctx.path(f + "/" + header).exists]:
            return header
    return None if _cuda_version(ctx, root) >= 11080 else "cuda.h of CUDA 11.8 or newer"

def _find(ctx):
    chosen = ctx.os.environ.get("DDPRUN_CUDA", "").rstrip("/")
    if chosen == "none":
        return None
    if chosen:
        missing = _missing(ctx, chosen)
        return fail("DDPRUN_CUDA: %s has no %s" % (chosen, missing)) if missing else chosen
    for root in _candidates(ctx):
        missing = _missing(ctx, root)
        if not missing:
            return root
        if missing != "bin/nvcc":
            print("the CUDA toolkit in %s is not used: it has no %s (`tools/dev setup --cuda` installs a complete one)" % (root, missing))
    return None

def _impl(ctx):
    root = _find(ctx)
    headers, version, nvcc = 'cc_library(name = "headers")', 0, ""
    if root:
        nvcc = root + "/bin/nvcc"
        version = _cuda_version(ctx, root)
        ctx.symlink(nvcc, "nvcc")
        ctx.symlink(root + "/include/cuda.h", "cuda.h")
        if root + "/include" not in _SYSTEM:
            ctx.symlink(root + "/include", "include")
        headers = """cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp"] + ["include/%s/**" % d for d in ["crt", "nccl_device", "nv", "cccl/nv"]]),
    defines = ["DDPRUN_HAVE_CUDA=1"],
    includes = glob(["include", "include/cccl"], exclude_directories = 0),
)"""
    ctx.file("BUILD.bazel", """package(default_visibility = ["//visibility:public"])
filegroup(name = "compiler", srcs = glob(["nvcc", "cuda.h"]))
%s
""" % headers)
    ctx.file("defs.bzl", "HAVE_CUDA = %r\nCUDA_VERSION = %d\nNVCC = %r\n" % (bool(root), version, nvcc))

cuda_toolkit = repository_rule(
    implementation = _impl,
    configure = True,
    local = True,
    # Bazel's server searches again when a variable changes. tools/lib.sh sets the stamp, which changes with the toolkits.
    environ = ["CUDA_HOME", "CUDA_PATH", "DDPRUN_CUDA", "DDPRUN_CUDA_STAMP", "HOME", "XDG_CACHE_HOME"],
)
