"""cuda_fatbin: compiles a .cu file for GPUs and embeds the result into a library. The driver API loads it at run time."""

load("@cuda//:defs.bzl", "HAVE_CUDA", "NVCC")

# Machine code for 8.x (A100) and 9.x (H100, H200). The driver of a newer GPU compiles the PTX when it loads the image.
_CODE = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
]

# As text in a C++ source, the image follows the flags of every configuration: position-independent code, sanitizers, hidden
# symbols. The array has one more byte, because it may not be empty.
_EMBED = """
{
  printf '#include <span>\\n\\nnamespace ddprun {\\n\\n'
  printf 'alignas(64) static constexpr unsigned char kImage[] = {\\n'
  od -An -v -tx1 -w24 "$1" | sed 's/ \\(..\\)/0x\\1,/g'
  printf '0};\\n\\n__attribute__((visibility("hidden"))) std::span<const unsigned char> %s();\\n' "$2"
  printf 'std::span<const unsigned char> %s() { return {kImage, sizeof kImage - 1}; }\\n\\n}  // namespace ddprun\\n' "$2"
} > "$3"
"""

def _impl(ctx):
    image = ctx.actions.declare_file(ctx.label.name + ".fatbin")
    source = ctx.actions.declare_file(ctx.label.name + ".cc")
    if HAVE_CUDA:
        # nvcc only preprocesses with the g++ in $PATH, so the version of g++ does not matter. The image is not compressed,
        # so that tests can read it and older drivers can load it.
        options = ["-fatbin", "-no-compress", "-allow-unsupported-compiler", "-std=c++17", "-I."]
        options += ["-Werror=all-warnings", "-Wno-deprecated-gpu-targets"]
        ctx.actions.run(
            outputs = [image],
            inputs = ctx.files.src + ctx.files.hdrs + ctx.files._compiler,
            executable = NVCC,
            arguments = options + _CODE + ctx.attr.copts + ["-o", image.path, ctx.file.src.path],
            mnemonic = "Nvcc",
            use_default_shell_env = True,
        )
    else:
        ctx.actions.write(image, "")
    ctx.actions.run_shell(
        outputs = [source],
        inputs = [image],
        arguments = [image.path, ctx.attr.function, source.path],
        command = _EMBED,
        mnemonic = "EmbedImage",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([source])), OutputGroupInfo(fatbin = depset([image]))]

_embedded_image = rule(
    implementation = _impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "copts": attr.string_list(),
        "function": attr.string(),
        "_compiler": attr.label(default = Label("@cuda//:compiler"), allow_files = True),
    },
)

def cuda_fatbin(name, src, function, hdrs = [], cuda_hdrs = [], copts = [], **kwargs):
    """A cc_library that defines `std::span<const unsigned char> ddprun::FUNCTION()`, the image of the kernels in `src`.

    The image is empty if there is no CUDA toolkit. It lives as long as the program, and may be given to cuModuleLoadData.

    Args:
      name: of the library.
      src: the .cu file. Each image is a module of its own, so kernels in several files are several libraries.
      function: the name of the function.
      hdrs: the header that declares the function.
      cuda_hdrs: the headers that `src` includes.
      copts: further options of nvcc.
      **kwargs: further arguments of the cc_library.
    """
    _embedded_image(name = name + "_image", src = src, hdrs = cuda_hdrs, copts = copts, function = function)
    native.cc_library(name = name, srcs = [name + "_image"], hdrs = hdrs, **kwargs)
