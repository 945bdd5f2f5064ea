"""cc_proto generates C++ code from a .proto file, optionally with gRPC stubs."""

def cc_proto(name, src, grpc = False, imports = {}, visibility = None):
    """Declares a cc_library for the messages of one .proto file and, if `grpc` is true, for its services.

    Args:
      name: the name of the library.
      src: the .proto file, which must be in this package; the generated header is "<package>/<file>.pb.h".
      grpc: whether to generate "<file>.grpc.pb.h" as well.
      imports: maps each .proto file of this package that `src` imports to the library for that file.
      visibility: the visibility of the library.
    """
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc"]
    flags = "--cpp_out=$(GENDIR)"
    if grpc:
        outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
        flags += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.genrule(
        name = name + "_gen",
        srcs = [src] + imports.keys(),
        outs = outs,
        cmd = "/usr/bin/protoc -I. %s $(location %s)" % (flags, src),
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        copts = ["-w"],  # generated code
        visibility = visibility,
        deps = ["//third_party:grpc" if grpc else "//third_party:protobuf"] + imports.values(),
    )
