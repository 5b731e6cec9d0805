# add_step() and what it is made of. Kernel sources end in .hip on every backend; the language that
# compiles them is set here.

# Kernel sources: the language that compiles them is set here. All other sources are plain C++.
function(set_kernel_language)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${COURSE_LANGUAGE})
endfunction()

# The libraries that a step needs: of common/'s kernels, and of the steps whose headers its files include. What
# those need in turn CMake links by itself. The files are read when CMake configures: a new include of another
# step asks for that.
function(needed_libraries result path)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${path}/*.h" "${CMAKE_SOURCE_DIR}/${path}/*.cpp"
    "${CMAKE_SOURCE_DIR}/${path}/*.hip")
  set(steps "")
  foreach(file IN LISTS files)
    file(STRINGS "${file}" includes REGEX "^#include \"stage[0-9]+_")
    list(TRANSFORM includes REPLACE "^#include \"(stage[0-9]+_[a-z0-9_]+/[0-9][0-9]_[a-z0-9_]+)/.*" "\\1")
    list(APPEND steps ${includes})
  endforeach()
  list(REMOVE_DUPLICATES steps)
  list(REMOVE_ITEM steps "${path}")
  list(TRANSFORM steps REPLACE ".*/[0-9][0-9]_" "step_")
  set(${result} ${steps} course_kernels PARENT_SCOPE)
endfunction()

# What computes is in the libraries and in kernels: the plain C++ of the programs and tests themselves is compiled
# with less, which takes a third off the time.
set(COURSE_PROGRAM_OPTIONS "$<$<CONFIG:Release>:-O1>" CACHE STRING
  "For the plain C++ of programs and tests, beside the options of the build")

# An executable, built into build/<backend>/<folder>/: of plain C++, kernels, or both, linked with
# `libraries`.
function(add_gpu_executable name sources folder libraries)
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "\\.hip$")
  if(kernels)
    set_kernel_language(${kernels})
  endif()
  set(plain ${sources})
  list(FILTER plain INCLUDE REGEX "\\.cpp$")
  if(plain)
    set_source_files_properties(${plain} PROPERTIES COMPILE_OPTIONS "${COURSE_PROGRAM_OPTIONS}")
  endif()
  add_executable(${name} ${sources})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}")
  target_link_libraries(${name} PRIVATE ${libraries} gpu course_warnings)
endfunction()

# A library of kernels and plain C++ that the step's program and test, and later steps, link: every version of
# a step is compiled once.
function(add_step_library name libraries)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "\\.hip$")
  set_kernel_language(${kernels})
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PRIVATE ${libraries} gpu course_warnings)
endfunction()

# Kernel sources as they are compiled: with COURSE_JOIN_VERSIONS all of them in one file, since nvcc and hipcc
# take longer to read their headers than to compile a version. Wherever the course lies, the file is the same to ccache.
function(joined_kernels result name)
  set(sources ${ARGN})
  if(COURSE_JOIN_VERSIONS AND sources)
    set(text "")
    foreach(source IN LISTS sources)
      file(RELATIVE_PATH source "${CMAKE_SOURCE_DIR}" "${source}")
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    set(sources "${CMAKE_BINARY_DIR}/joined/${name}.hip")
    file(CONFIGURE OUTPUT "${sources}" CONTENT "${text}" @ONLY)
  endif()
  set(${result} "${sources}" PARENT_SCOPE)
endfunction()

# A backend of the framework, loaded when a program asks for it: build/<backend>/backends/libcourse_NAME.so.
# It exports course_backend() alone, so that two plug-ins that link the same steps stand beside each other.
function(add_backend_plugin name libraries)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "\\.hip$")
  if(kernels)
    set_kernel_language(${kernels})
  endif()
  add_library(course_${name} MODULE ${ARGN})
  set_target_properties(course_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/backends"
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden HIP_VISIBILITY_PRESET hidden)
  target_link_libraries(course_${name} PRIVATE ${libraries} course_warnings)
  target_link_options(course_${name} PRIVATE LINKER:--exclude-libs,ALL)
  foreach(user IN ITEMS backends backends_test autograd autograd_test modules modules_test
      capture capture_test)  # which load it and do not link it
    add_dependencies(${user} course_${name})
  endforeach()
endfunction()

# Registers `command` under ctest: once on a GPU, and on the CPU backend once for each size of a
# wave, as NAME (32) and NAME.wave64. There static shared memory begins each block as NaN.
#   add_gpu_test(<name> <label> COMMAND command... [REFERENCES])
function(add_gpu_test name label)
  cmake_parse_arguments(PARSE_ARGV 2 arg "REFERENCES" "" "COMMAND")
  set(waves 0)
  if(COURSE_BACKEND STREQUAL cpu)
    set(waves 32 64)
  endif()
  set(timeout 300)
  if(COURSE_SANITIZE)
    set(timeout 900)
  elseif(CMAKE_CROSSCOMPILING_EMULATOR)
    set(timeout 1800)  # gemm_mixed_test takes 7 to 10 minutes
  endif()
  foreach(wave IN LISTS waves)
    set(test ${name})
    set(environment "COURSE_CACHE_DIR=${CMAKE_BINARY_DIR}/code_cache")  # not the home folder's
    if(CMAKE_CROSSCOMPILING_EMULATOR)  # tests start themselves with it, and compile code for it
      list(APPEND environment "COURSE_EMULATOR=${CMAKE_CROSSCOMPILING_EMULATOR}" "CXX=${CMAKE_CXX_COMPILER}")
    endif()
    if(wave)
      list(APPEND environment HIP_CPU_WAVE=${wave} HIP_CPU_POISON=1)
    endif()
    if(wave EQUAL 64)
      set(test ${name}.wave64)
    endif()
    add_test(NAME ${test} COMMAND ${arg_COMMAND})
    if(arg_REFERENCES AND COURSE_HAVE_REFERENCES)
      list(APPEND environment "COURSE_REFERENCES=${COURSE_REFERENCES}")
      set_tests_properties(${test} PROPERTIES FIXTURES_REQUIRED references)
    endif()
    set_tests_properties(${test} PROPERTIES
      LABELS ${label} TIMEOUT ${timeout} ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# What the precompiled headers and the tests must be compiled with alike: after all that a test links.
add_library(course_precompiled INTERFACE)
target_compile_options(course_precompiled INTERFACE ${COURSE_PROGRAM_OPTIONS}
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>)  # their content counts, not their age

# With COURSE_PRECOMPILE what every test includes is compiled once, with the first test. Each then has those
# headers whether it includes them or not: that it does include them the plain CPU build says. The path is absolute,
# as those within clang's precompiled headers are: another folder must not take them from ccache.
function(precompile_testing name sources)
  if(NOT COURSE_PRECOMPILE)
    return()
  endif()
  get_property(first GLOBAL PROPERTY COURSE_FIRST_TEST)
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE "${CMAKE_SOURCE_DIR}/common/testing.h")
    set_property(GLOBAL PROPERTY COURSE_FIRST_TEST ${name})
  endif()
  list(FILTER sources INCLUDE REGEX "\\.hip$")
  if(sources)
    set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  target_link_libraries(${name} PRIVATE course_precompiled)
endfunction()

# A Catch2 program, and its ctest entries. Its first source holds the test cases; a .hip file beside it
# the kernels that only the test has. Without NumPy the cases tagged [numpy] are left out. ThreadSanitizer
# sees the tests of races and of devices; scripts/exercises.py shows it the steps' kernels, as `course
# check` shows it a learner's. AddressSanitizer is spared all but the [numpy] cases of the longest tests,
# which take it minutes. The target `course_tests` builds what ctest runs of these, and no program.
function(add_gpu_catch_test name sources folder label libraries)
  list(GET sources 0 source)
  add_gpu_executable(${name} "${sources}" "${folder}" "${libraries}")
  target_link_libraries(${name} PRIVATE course_testing)
  precompile_testing(${name} "${sources}")
  set(cases "")
  if(NOT COURSE_HAVE_REFERENCES)
    set(cases "~[numpy]~[.]")  # Catch2 v2 takes a filter that only excludes as asking for hidden cases
  endif()
  if(COURSE_SANITIZE STREQUAL thread AND NOT name MATCHES "^(race|device)_test$")
    return()
  endif()
  if(COURSE_SANITIZE MATCHES address AND name MATCHES "^(train_|attention_)" AND COURSE_HAVE_REFERENCES)
    set(cases "[numpy]")
  endif()
  add_gpu_test(${name} ${label} COMMAND ${name} ${cases} REFERENCES)
  if(NOT TARGET course_tests)
    add_custom_target(course_tests)
  endif()
  add_dependencies(course_tests ${name})
endfunction()

# Each header must compile alone, so that a learner can include it without knowing what it needs: as
# plain C++ where it has no kernels. The target `headers` is part of the plain CPU build; elsewhere it is
# built when asked for, being slow. A header that the source beside it includes first compiles alone there.
function(add_header_check header)
  string(REGEX REPLACE "\\.h$" "" stem "${header}")
  foreach(suffix cpp hip)
    if(EXISTS "${CMAKE_SOURCE_DIR}/${stem}.${suffix}")
      file(STRINGS "${CMAKE_SOURCE_DIR}/${stem}.${suffix}" first REGEX "^#include" LIMIT_COUNT 1)
      if(first STREQUAL "#include \"${header}\"")
        return()
      endif()
    endif()
  endforeach()
  string(MAKE_C_IDENTIFIER "${header}" name)
  file(STRINGS "${CMAKE_SOURCE_DIR}/${header}" kernel_words REGEX "common/gpu\\.h\"|__global__|__device__ inline")
  file(STRINGS "${CMAKE_SOURCE_DIR}/${header}" kernel_headers REGEX "#include \"stage.*\"")
  set(suffix cpp)
  if(kernel_words OR kernel_headers)
    set(suffix hip)
  endif()
  set(source "${CMAKE_BINARY_DIR}/headers/${name}.${suffix}")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"@header@\"\n" @ONLY)
  if(suffix STREQUAL hip)
    set_kernel_language("${source}")
  endif()
  if(NOT TARGET headers)
    add_library(headers OBJECT)
    if(COURSE_SANITIZE OR NOT COURSE_BACKEND STREQUAL cpu)
      set_target_properties(headers PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
    target_link_libraries(headers PRIVATE gpu course_warnings course_testing)
  endif()
  target_sources(headers PRIVATE "${source}")
endfunction()

# A step of the course: add_step(stage1_vector/01_vector_add) builds the library `step_vector_add` of the
# step's versions and of its plain C++, the program `vector_add` and the test `vector_add_test`, registers
# both with ctest under the label `stage1`, and has the step's headers compiled alone.
function(add_step path)
  string(REGEX MATCH "^((stage[0-9]+)_[a-z0-9_]+)/[0-9][0-9]_([a-z0-9_]+)$" matched "${path}")
  if(NOT matched)
    course_error("add_step(${path}): expected stageN_name/NN_step.")
  endif()
  set(stage ${CMAKE_MATCH_1})
  set(label ${CMAKE_MATCH_2})
  set(name ${CMAKE_MATCH_3})
  set(folder "${CMAKE_SOURCE_DIR}/${path}")

  # Versions of plain C++ are parts like all others.
  file(GLOB versions CONFIGURE_DEPENDS "${folder}/versions/*.hip")
  string(MAKE_C_IDENTIFIER "${path}" identifier)
  joined_kernels(versions ${identifier} ${versions})
  file(GLOB parts CONFIGURE_DEPENDS "${folder}/*.cpp" "${folder}/versions/*.cpp")
  if(NOT versions AND NOT parts MATCHES "/versions/")
    course_error("add_step(${path}): its folder versions/ has no file.")
  endif()
  list(REMOVE_ITEM parts "${folder}/${name}.cpp")
  list(FILTER parts EXCLUDE REGEX "_test\\.cpp$")
  needed_libraries(libraries ${path})
  add_step_library(step_${name} "${libraries}" ${versions} ${parts})
  list(PREPEND libraries step_${name})
  add_gpu_executable(${name} "${folder}/${name}.cpp" ${stage} "${libraries}")
  if(NOT COURSE_SANITIZE STREQUAL thread)
    add_gpu_test(${name} ${label} COMMAND ${name} --quick)
  endif()
  # A test may have parts, PART_test.cpp, beside NAME_test.cpp.
  file(GLOB test CONFIGURE_DEPENDS "${folder}/*_test.cpp" "${folder}/${name}_test.hip")
  add_gpu_catch_test(${name}_test "${test}" ${stage} ${label} "${libraries}")
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}" "${folder}/*.h" "${folder}/detail/*.h")
  foreach(header IN LISTS headers)
    add_header_check(${header})
  endforeach()
endfunction()
