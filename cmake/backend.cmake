# Chooses where the kernels run, and enables the language that compiles them there.
#
# Sets COURSE_BACKEND (hip, cuda or cpu) and COURSE_LANGUAGE (HIP, CUDA or CXX). `auto` takes a GPU
# only where both its toolkit and a device are present: a toolkit alone can build, but nothing runs.

include("${CMAKE_CURRENT_LIST_DIR}/detect.cmake")

set(GPU_BACKEND auto CACHE STRING "Where kernels run: auto, hip (AMD), cuda (NVIDIA) or cpu")
set_property(CACHE GPU_BACKEND PROPERTY STRINGS auto hip cuda cpu)
if(NOT GPU_BACKEND MATCHES "^(auto|hip|cuda|cpu)$")
  course_error("GPU_BACKEND=${GPU_BACKEND} is not one of auto, hip, cuda, cpu.")
endif()

find_cuda_compiler(cuda_compiler)
find_hip_root(hip_root)
find_cuda_devices(cuda_devices)
find_hip_devices(hip_devices)

# ---- Which backend, and why -----------------------------------------------------------------------

if(cuda_compiler AND cuda_devices)
  set(best cuda)
elseif(hip_root AND hip_devices)
  set(best hip)
else()
  set(best cpu)
endif()

set(found "")
foreach(vendor IN ITEMS cuda hip)
  set(toolkit "${cuda_compiler}")
  set(name NVIDIA)
  if(vendor STREQUAL hip)
    set(toolkit "${hip_root}")
    set(name AMD)
  endif()
  if(toolkit AND ${vendor}_devices)
    list(APPEND found "${name} toolkit and device")
  elseif(toolkit)
    list(APPEND found "${name} toolkit but no ${name} device")
  elseif(${vendor}_devices)
    list(APPEND found "${name} device but no ${name} toolkit")
  else()
    list(APPEND found "no ${name} toolkit or device")
  endif()
endforeach()
list(JOIN found ", " found)

if(GPU_BACKEND STREQUAL auto)
  set(COURSE_BACKEND ${best})
  message(STATUS "GPU backend: ${COURSE_BACKEND} (auto: ${found})")
else()
  set(COURSE_BACKEND ${GPU_BACKEND})
  message(STATUS "GPU backend: ${COURSE_BACKEND} (as asked)")
endif()

# ---- The language that compiles the kernels -------------------------------------------------------
# Architectures are always explicit: those of the devices that are here, else a common choice for
# code that is compiled here and run elsewhere.

if(COURSE_BACKEND STREQUAL cuda)
  if(NOT cuda_compiler)
    course_error("GPU_BACKEND=cuda needs nvcc: install the CUDA toolkit (12 or newer) and put \
nvcc on PATH, or use -DGPU_BACKEND=cpu.")
  endif()
  set(COURSE_LANGUAGE CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${cuda_compiler}")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 90a-real)
    if(cuda_devices)
      set(CMAKE_CUDA_ARCHITECTURES ${cuda_devices})
    endif()
  endif()
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
    course_error("CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old: install 12 or newer.")
  endif()
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

elseif(COURSE_BACKEND STREQUAL hip)
  if(NOT hip_root)
    course_error("GPU_BACKEND=hip needs HIP 5.2 or newer: install ROCm, or on Debian and Ubuntu \
apt install hipcc libamdhip64-dev; or use -DGPU_BACKEND=cpu.")
  endif()
  set(COURSE_LANGUAGE HIP)
  if(NOT CMAKE_HIP_ARCHITECTURES)
    set(CMAKE_HIP_ARCHITECTURES gfx90a gfx1030)
    if(hip_devices)
      set(CMAKE_HIP_ARCHITECTURES ${hip_devices})
    endif()
  endif()
  if(EXISTS "${hip_root}/lib/cmake/hip-lang/hip-lang-config.cmake")
    set(CMAKE_HIP_COMPILER_ROCM_ROOT "${hip_root}")
    find_program(COURSE_HIP_CLANG clang++ NO_DEFAULT_PATH REQUIRED
      PATHS "${hip_root}/llvm/bin" "${hip_root}/lib/llvm/bin" DOC "ROCm's clang++")
  else()
    # A distribution's HIP: its clang is the one that hipcc uses, and it must be told where the
    # device libraries are: in the system's folders (Debian) or in the compiler's own (Ubuntu).
    set(CMAKE_HIP_COMPILER_ROCM_ROOT "${CMAKE_CURRENT_LIST_DIR}/distribution_hip")
    execute_process(COMMAND "${COURSE_HIPCC}" --version
      OUTPUT_VARIABLE hipcc_version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCH "clang version ([0-9]+)" ignored "${hipcc_version}")
    find_program(COURSE_HIP_CLANG "clang++-${CMAKE_MATCH_1}" clang++ REQUIRED
      DOC "The clang++ that hipcc uses")
    execute_process(COMMAND "${COURSE_HIP_CLANG}" -print-resource-dir
      OUTPUT_VARIABLE clang_resources ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    find_path(COURSE_HIP_DEVICE_LIBRARIES ocml.bc DOC "The folder that holds AMD's device libraries"
      PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib "${clang_resources}"
      PATH_SUFFIXES amdgcn/bitcode)
    mark_as_advanced(COURSE_HIP_DEVICE_LIBRARIES)
    if(NOT COURSE_HIP_DEVICE_LIBRARIES)
      course_error("AMD's device libraries (ocml.bc) are missing: apt install hipcc brings them.")
    endif()
    string(APPEND CMAKE_HIP_FLAGS " --rocm-path=${hip_root}"
      " --rocm-device-lib-path=${COURSE_HIP_DEVICE_LIBRARIES}")
    if(hipcc_version MATCHES "HIP version: *([0-9]+\\.[0-9]+\\.[0-9]+)")
      string(APPEND CMAKE_HIP_FLAGS " --hip-version=${CMAKE_MATCH_1}")
    endif()
  endif()
  mark_as_advanced(COURSE_HIP_CLANG)
  if(NOT CMAKE_HIP_COMPILER)
    set(CMAKE_HIP_COMPILER "${COURSE_HIP_CLANG}")
  endif()
  enable_language(HIP)
  message(STATUS "HIP with clang ${CMAKE_HIP_COMPILER_VERSION} for ${CMAKE_HIP_ARCHITECTURES}")

else()
  set(COURSE_LANGUAGE CXX)
endif()
