"""cc_proto: C++ code from a .proto file, optionally with gRPC stubs."""

def cc_proto(name, src, grpc = False, imports = {}, visibility = None):
    """Makes a cc_library of the messages (and services, if grpc) of one .proto file.

    Args:
      name: the library.
      src: the .proto file, in this package; include it as "<package>/<file>.pb.h".
      grpc: also generate "<file>.grpc.pb.h".
      imports: the .proto files of this package that it imports, with their libraries.
      visibility: who may depend on it.
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
