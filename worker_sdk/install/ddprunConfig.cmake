# find_package(ddprun) defines ddprun::ddprun, the shared library, and ddprun::static.
include(CMakeFindDependencyMacro)
find_dependency(Threads)

get_filename_component(_ddprun_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET ddprun::ddprun)
  add_library(ddprun::ddprun SHARED IMPORTED)
  set_target_properties(ddprun::ddprun PROPERTIES
    IMPORTED_LOCATION "${_ddprun_prefix}/lib/libddprun.so"
    IMPORTED_SONAME "@SONAME@"
    INTERFACE_INCLUDE_DIRECTORIES "${_ddprun_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17)

  add_library(ddprun::static STATIC IMPORTED)
  set_target_properties(ddprun::static PROPERTIES
    IMPORTED_LOCATION "${_ddprun_prefix}/lib/libddprun.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_ddprun_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()

unset(_ddprun_prefix)
