# What GPU toolkits and devices does this machine have? Nothing here changes the build.

# The NVIDIA toolkit: result is nvcc's path, or empty.
function(find_cuda_compiler result)
  find_program(COURSE_NVCC nvcc
    HINTS "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin
    DOC "The CUDA compiler")
  mark_as_advanced(COURSE_NVCC)
  set(${result} "${COURSE_NVCC}" PARENT_SCOPE)
  if(NOT COURSE_NVCC)
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# The AMD toolkit: result is its root folder (ROCm's, or /usr for a distribution's HIP), or empty.
function(find_hip_root result)
  foreach(root IN ITEMS "$ENV{ROCM_PATH}" /opt/rocm)
    if(root AND EXISTS "${root}/lib/cmake/hip-lang/hip-lang-config.cmake")
      set(${result} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  find_path(COURSE_HIP_INCLUDE hip/hip_runtime.h DOC "The folder that holds hip/hip_runtime.h")
  find_program(COURSE_HIPCC hipcc DOC "HIP's compiler driver, asked which clang it uses")
  mark_as_advanced(COURSE_HIP_INCLUDE COURSE_HIPCC)
  if(COURSE_HIP_INCLUDE AND COURSE_HIPCC)
    cmake_path(GET COURSE_HIP_INCLUDE PARENT_PATH root)
    set(${result} "${root}" PARENT_SCOPE)
  else()
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# NVIDIA devices: result is a list of compile targets such as 75-real or 90a-real, `native` where a
# device is there but can't be asked, or empty. From compute capability 9.0 on the suffix `a` opens
# the instructions of that generation alone; such code runs on exactly the device that is here.
function(find_cuda_devices result)
  set(architectures "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed)
  if(failed EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
    foreach(capability IN LISTS capabilities)
      string(REPLACE "." "" architecture "${capability}")
      if(capability VERSION_GREATER_EQUAL 9.0)
        string(APPEND architecture a)
      endif()
      list(APPEND architectures "${architecture}-real")
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  if(NOT architectures AND EXISTS /dev/nvidia0)
    set(architectures native)
  endif()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

# The target with these numbers: its name spells the last two as hexadecimal digits.
function(name_hip_target result major minor stepping)
  math(EXPR minor "${minor}" OUTPUT_FORMAT HEXADECIMAL)
  math(EXPR stepping "${stepping}" OUTPUT_FORMAT HEXADECIMAL)
  string(REPLACE 0x "" suffix "${minor}${stepping}")
  set(${result} "gfx${major}${suffix}" PARENT_SCOPE)
endfunction()

# AMD devices: result is a list of targets such as gfx90a, or empty. The kernel driver lists its
# agents in `nodes`; a GPU's gfx_target_version is major * 10000 + minor * 100 + stepping.
# HSA_OVERRIDE_GFX_VERSION=10.3.0 has the runtime take every device for a gfx1030, so that it runs that
# target's code alone.
function(find_hip_devices result)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NODES;DEVICE" "")
  if(NOT arg_NODES)
    set(arg_NODES /sys/class/kfd/kfd/topology/nodes)
    set(arg_DEVICE /dev/kfd)
  endif()
  set(architectures "")
  if(EXISTS "${arg_DEVICE}")
    file(GLOB properties "${arg_NODES}/*/properties")
    foreach(file IN LISTS properties)
      file(READ "${file}" text)
      if(text MATCHES "gfx_target_version ([1-9][0-9]*)")
        math(EXPR major "${CMAKE_MATCH_1} / 10000")
        name_hip_target(architecture ${major} "${CMAKE_MATCH_1} / 100 % 100" "${CMAKE_MATCH_1} % 100")
        list(APPEND architectures ${architecture})
      endif()
    endforeach()
    if(architectures AND "$ENV{HSA_OVERRIDE_GFX_VERSION}" MATCHES "^([0-9]+)\\.([0-9]+)\\.([0-9]+)$")
      name_hip_target(architectures ${CMAKE_MATCH_1} ${CMAKE_MATCH_2} ${CMAKE_MATCH_3})
    endif()
    list(REMOVE_DUPLICATES architectures)
  endif()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()
