# What CMake's HIP language must know about the HIP runtime: the target that every HIP program
# links. ROCm under /opt/rocm brings its own copy of this package; Debian and Ubuntu install theirs
# where CMake does not look, and it names include folders that hide the compiler's own.
# cmake/backend.cmake points CMake here when HIP comes from a distribution.
add_library(hip-lang::device INTERFACE IMPORTED)
set_target_properties(hip-lang::device PROPERTIES
  INTERFACE_LINK_LIBRARIES "amdhip64"
  INTERFACE_LINK_OPTIONS "$<$<LINK_LANGUAGE:HIP>:--hip-link>")
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
