# What every program links: `gpu` for code with kernels, `course_common` for plain C++.

set(root "${CMAKE_SOURCE_DIR}")

# ---- Warnings, for the course's own code only -----------------------------------------------------

add_library(course_warnings INTERFACE)
# What sanitizers insert makes GCC warn of code that is right. How long a loop clang unrolls depends on its
# version: that it leaves one as it is (pass-failed) stays a warning.
if(NOT COURSE_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(nvcc_werror "")
  set(werror "")
  if(COURSE_WERROR)
    set(nvcc_werror -Werror=all-warnings)
    set(werror -Werror)
  endif()
  target_compile_options(course_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX,HIP>:-Wall -Wextra -Wshadow ${werror}>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wunused-const-variable=1>  # clang's -Wall has it
    $<$<COMPILE_LANGUAGE:HIP>:-Wno-error=pass-failed>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra ${nvcc_werror}>)
endif()

# ---- Sanitizers -----------------------------------------------------------------------------------

add_library(course_sanitize INTERFACE)
if(COURSE_SANITIZE)
  string(REPLACE ";" "," sanitizers "${COURSE_SANITIZE}")
  target_compile_options(course_sanitize INTERFACE
    -O1 -g1 -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # An array of no elements is a null pointer here, and clang, unlike g++, objects to any offset to it.
  target_compile_options(course_sanitize INTERFACE
    $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=pointer-overflow>)
  target_link_options(course_sanitize INTERFACE -fsanitize=${sanitizers})
  if(COURSE_FUZZ)  # libFuzzer sees which branches an input takes
    target_compile_options(course_sanitize INTERFACE -fsanitize=fuzzer-no-link)
  endif()
  # Compilers do not agree on a macro that says which sanitizer is on.
  foreach(sanitizer IN LISTS COURSE_SANITIZE)
    string(TOUPPER ${sanitizer} sanitizer)
    target_compile_definitions(course_sanitize INTERFACE COURSE_SANITIZE_${sanitizer})
  endforeach()
endif()

# ---- Options, text, JSON, arrays: compiled once, plain C++ -------------------------------------------

file(GLOB common_sources CONFIGURE_DEPENDS "${root}/common/*.cpp")
list(REMOVE_ITEM common_sources
  "${root}/common/blas.cpp" "${root}/common/dnn.cpp" "${root}/common/runtime_code.cpp"
  "${root}/common/testing_main.cpp")
add_library(course_common STATIC ${common_sources})
target_include_directories(course_common PUBLIC "${root}")
target_link_libraries(course_common
  PUBLIC course_sanitize ${CMAKE_DL_LIBS}
  PRIVATE course_warnings fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json ZLIB::ZLIB)

# Results name the commit that they were measured at.
set(COURSE_COMMIT "" CACHE STRING "The commit that is built, where git can't say")
add_custom_target(course_commit
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${root}" "-DHEADER=${CMAKE_BINARY_DIR}/generated/course_commit.h"
    "-DCOMMIT=${COURSE_COMMIT}" -P "${root}/cmake/commit.cmake"
  BYPRODUCTS "${CMAKE_BINARY_DIR}/generated/course_commit.h" VERBATIM)
add_dependencies(course_common course_commit)
target_include_directories(course_common PRIVATE "${CMAKE_BINARY_DIR}/generated")

# ---- The CPU backend ------------------------------------------------------------------------------

if(COURSE_BACKEND STREQUAL cpu)
  include(CheckCXXCompilerFlag)
  file(GLOB cpu_sources CONFIGURE_DEPENDS "${root}/common/cpu/*.cpp")
  list(REMOVE_ITEM cpu_sources "${root}/common/cpu/runtime_compiler.cpp")
  add_library(gpu_cpu STATIC ${cpu_sources})
  target_include_directories(gpu_cpu PUBLIC "${root}")
  target_link_libraries(gpu_cpu
    PUBLIC course_common course_sanitize Threads::Threads Boost::context
    PRIVATE course_warnings)
  # A GPU sets no errno and raises no signal on a floating-point exception. Without these two, loops
  # that call sqrt or choose between two values do not become vector code; no result changes.
  target_compile_options(gpu_cpu PUBLIC -fno-math-errno -fno-trapping-math)
  if(COURSE_NATIVE)
    check_cxx_compiler_flag(-march=native COURSE_HAVE_MARCH_NATIVE)
    if(COURSE_HAVE_MARCH_NATIVE)
      target_compile_options(gpu_cpu PUBLIC -march=native)
      set(COURSE_NATIVE_OPTIONS "-march=native")
      # GCC 12 loses zeros at the end of a constant that it stores with AVX-512: {1, 1, 1, 0} becomes
      # {1, 1, 1, 1}. Such a compiler is asked, by running what it makes, and gets no AVX-512.
      include(CheckCXXSourceRuns)
      set(CMAKE_REQUIRED_FLAGS "-O2 -march=native")
      check_cxx_source_runs([[
        #include <vector>
        __attribute__((noinline)) std::vector<double> constant() { return {1, 1, 1, 0}; }
        int main() { return static_cast<int>(constant().back()); }
      ]] COURSE_CONSTANTS_ARE_RIGHT)
      unset(CMAKE_REQUIRED_FLAGS)
      check_cxx_compiler_flag(-mno-avx512f COURSE_HAVE_MNO_AVX512F)
      if(COURSE_HAVE_MNO_AVX512F AND NOT COURSE_CONSTANTS_ARE_RIGHT)
        target_compile_options(gpu_cpu PUBLIC -mno-avx512f)
        string(APPEND COURSE_NATIVE_OPTIONS " -mno-avx512f")
      endif()
    endif()
  endif()
  # `if (i < n) c[i] = ...` is the first line of most kernels. GCC vectorises it with masked stores, which
  # take several processors longer than the plain loop does.
  check_cxx_compiler_flag(-fno-tree-loop-if-convert COURSE_HAVE_NO_TREE_LOOP_IF_CONVERT)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND COURSE_HAVE_NO_TREE_LOOP_IF_CONVERT)
    target_compile_options(gpu_cpu PUBLIC -fno-tree-loop-if-convert)
  endif()
  # The backend's own data is shared by all fibers on purpose: ThreadSanitizer is told what orders the
  # kernels, and must not look at the rest.
  if(COURSE_SANITIZE STREQUAL thread)
    set_source_files_properties(${cpu_sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
  # A large frame must touch the guard page below a fiber's stack, not jump over it.
  check_cxx_compiler_flag(-fstack-clash-protection COURSE_HAVE_STACK_CLASH_PROTECTION)
  if(COURSE_HAVE_STACK_CLASH_PROTECTION)
    target_compile_options(gpu_cpu PUBLIC -fstack-clash-protection)
  endif()
endif()

# ---- Vendor BLAS, where there is one, to be measured beside the course's kernels ------------------------

if(EXISTS "${root}/common/blas.cpp")
  add_library(course_blas STATIC "${root}/common/blas.cpp")
  target_include_directories(course_blas PUBLIC "${root}")
  target_link_libraries(course_blas PUBLIC course_sanitize PRIVATE course_warnings)
  if(COURSE_BACKEND STREQUAL cuda)
    find_package(CUDAToolkit QUIET)
    if(TARGET CUDA::cublas)
      target_link_libraries(course_blas PRIVATE CUDA::cublas CUDA::cudart_static)
      target_compile_definitions(course_blas PRIVATE COURSE_HAVE_CUBLAS)
    endif()
  elseif(COURSE_BACKEND STREQUAL hip)
    find_package(rocblas QUIET)
    if(TARGET roc::rocblas)
      target_link_libraries(course_blas PRIVATE roc::rocblas)
      target_compile_definitions(course_blas PRIVATE COURSE_HAVE_ROCBLAS)
    endif()
  endif()
endif()

# ---- Vendor convolutions, likewise. -DCUDNN_ROOT=... where cuDNN is in no usual place -----------------------

if(EXISTS "${root}/common/dnn.cpp")
  add_library(course_dnn STATIC "${root}/common/dnn.cpp")
  target_include_directories(course_dnn PUBLIC "${root}")
  target_link_libraries(course_dnn PUBLIC course_sanitize PRIVATE course_warnings)
  if(COURSE_BACKEND STREQUAL cuda)
    find_package(CUDAToolkit QUIET)
    set(CUDNN_ROOT "" CACHE PATH "The folder that has cuDNN's include and lib")
    find_path(CUDNN_INCLUDE cudnn.h HINTS "${CUDNN_ROOT}" ${CUDAToolkit_INCLUDE_DIRS}
      PATH_SUFFIXES include)
    # Python's packages have the library without the name that linkers look for.
    find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 libcudnn.so.8 NAMES_PER_DIR
      HINTS "${CUDNN_ROOT}" "${CUDAToolkit_LIBRARY_DIR}" PATH_SUFFIXES lib lib64)
    if(CUDNN_INCLUDE AND CUDNN_LIBRARY AND TARGET CUDA::cudart_static)
      target_include_directories(course_dnn SYSTEM PRIVATE "${CUDNN_INCLUDE}")
      target_link_libraries(course_dnn PRIVATE "${CUDNN_LIBRARY}" CUDA::cudart_static)
      target_compile_definitions(course_dnn PRIVATE COURSE_HAVE_CUDNN)
    endif()
  endif()
endif()

# ---- What code with kernels links -------------------------------------------------------------------

add_library(gpu INTERFACE)
string(TOUPPER ${COURSE_BACKEND} backend)
target_compile_definitions(gpu INTERFACE GPU_BACKEND_${backend}=1)
# Plain C++ includes the runtime's headers too; nvcc and clang find them by themselves.
if(COURSE_BACKEND STREQUAL cuda)
  find_package(CUDAToolkit REQUIRED)
  target_include_directories(gpu SYSTEM INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${CUDAToolkit_INCLUDE_DIRS}>)
  target_link_libraries(gpu INTERFACE CUDA::cudart_static)
elseif(COURSE_BACKEND STREQUAL hip)
  target_include_directories(gpu SYSTEM INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${hip_root}/include>)
  # clang links programs of plain C++ too, and is told the architectures of kernels that it then has not.
  target_link_options(gpu INTERFACE $<$<LINK_LANGUAGE:HIP>:-Wno-unused-command-line-argument>)
endif()
target_include_directories(gpu INTERFACE "${root}")
target_link_libraries(gpu INTERFACE course_common course_sanitize)
if(TARGET course_blas)
  target_link_libraries(gpu INTERFACE course_blas)
endif()
if(TARGET course_dnn)
  target_link_libraries(gpu INTERFACE course_dnn)
endif()
if(TARGET gpu_cpu)
  target_link_libraries(gpu INTERFACE gpu_cpu)
endif()

# ---- Kernels of common/: every program's random numbers, and those that are compiled while it runs ----------

set(kernels "${root}/common/random.hip")
if(COURSE_BACKEND STREQUAL cpu)
  list(APPEND kernels "${root}/common/cpu/run_code.hip")
endif()
add_step_library(course_kernels "" ${kernels} "${root}/common/runtime_code.cpp"
  "${root}/common/${COURSE_BACKEND}/runtime_compiler.cpp")
if(COURSE_BACKEND STREQUAL cpu)
  target_compile_definitions(course_kernels PRIVATE COURSE_CPU_OPTIONS="${COURSE_NATIVE_OPTIONS}")
elseif(COURSE_BACKEND STREQUAL cuda)
  target_compile_definitions(course_kernels PRIVATE COURSE_TOOLKIT_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}")
endif()

# ---- The test runner ------------------------------------------------------------------------------------

# Catch2 v2 is headers, but for a main function that a distribution compiles for its own processor alone.
if(TARGET Catch2::Catch2WithMain AND NOT (CMAKE_CROSSCOMPILING AND Catch2_VERSION VERSION_LESS 3))
  add_library(course_testing INTERFACE)
  target_link_libraries(course_testing INTERFACE Catch2::Catch2WithMain)
else()
  add_library(course_testing STATIC "${root}/common/testing_main.cpp")
  target_link_libraries(course_testing PUBLIC Catch2::Catch2 course_sanitize)
endif()
