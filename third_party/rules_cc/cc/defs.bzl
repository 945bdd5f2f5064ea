"""Forwards rules_cc to the native rules: Debian's bazel-rules-cc does not load with Debian's Bazel."""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_proto_library = native.cc_proto_library
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
cc_toolchain_alias = native.cc_toolchain_alias
cc_libc_top_alias = native.cc_libc_top_alias
objc_import = native.objc_import
objc_library = native.objc_library
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
