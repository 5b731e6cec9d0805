# tests/fuzz/NAME.cpp, or NAME.hip where it includes kernels, becomes the program fuzz/NAME; the target
# fuzz_targets builds all of them. They link no step's library: a reader needs no kernel. What a
# reader is made of beside its headers is listed here.

set(fuzz_sales stage5_training/07_train_sales/sales_data.cpp)
set(fuzz_printable ${fuzz_sales})
set(fuzz_mnist_data stage5_training/08_train_mnist/mnist_data.cpp)
set(fuzz_checkpoint stage5_training/04_optimizers/arena.cpp stage5_training/05_sequential/checkpoint.cpp)
set(fuzz_shakespeare_text stage7_transformer/07_train_shakespeare/shakespeare_data.cpp)
set(fuzz_vocabulary ${fuzz_shakespeare_text})
set(fuzz_checkpoint_shakespeare ${fuzz_checkpoint} ${fuzz_shakespeare_text}
  stage7_transformer/06_transformer_block/problem.cpp
  stage7_transformer/07_train_shakespeare/checkpoint.cpp stage7_transformer/07_train_shakespeare/model.cpp
  stage7_transformer/07_train_shakespeare/settings.cpp)
set(fuzz_checkpoint_sales ${fuzz_checkpoint} stage5_training/07_train_sales/checkpoint.cpp)

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/fuzz/*.cpp"
  "${CMAKE_SOURCE_DIR}/tests/fuzz/*.hip")
set_kernel_language(${fuzz_sources})
add_custom_target(fuzz_targets)
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  set(parts ${fuzz_${name}})
  list(TRANSFORM parts PREPEND "${CMAKE_SOURCE_DIR}/")
  set_kernel_language(${parts})
  add_executable(fuzz_${name} "${source}" ${parts})
  set_target_properties(fuzz_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
  target_link_libraries(fuzz_${name} PRIVATE gpu course_warnings ZLIB::ZLIB)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz_targets fuzz_${name})
endforeach()
