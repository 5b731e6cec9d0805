# tests/fuzz/NAME.cpp, or NAME.hip where it includes kernels, becomes the program fuzz/NAME; the target
# fuzz_targets builds all of them. They link no step's library: a reader needs no kernel.

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/fuzz/*.cpp"
  "${CMAKE_SOURCE_DIR}/tests/fuzz/*.hip")
set_kernel_language(${fuzz_sources})
add_custom_target(fuzz_targets)
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  add_executable(fuzz_${name} "${source}")
  set_target_properties(fuzz_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
  target_link_libraries(fuzz_${name} PRIVATE gpu course_warnings ZLIB::ZLIB)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz_targets fuzz_${name})
endforeach()
