# The libraries behind common/*.cpp, the tests and the CPU backend. Each is taken from the first of
#   1. find_package                 what the distribution or CMAKE_PREFIX_PATH provides;
#   2. -DCOURSE_EXTRA_INCLUDE=DIR   a folder of headers (fmt, CLI, nlohmann, catch2) for machines
#                                   that have neither the packages nor a network;
#   3. FetchContent                 a release archive, downloaded once per build folder and checked.

include(FetchContent)

set(COURSE_EXTRA_INCLUDE "" CACHE PATH "A folder with header-only copies of fmt, CLI11, nlohmann-json or Catch2 v2")

# Makes `target` available.
#   course_library(<package> TARGET t PACKAGE debian-package URL u SHA256 h
#                  [HEADER path/in/extra/include.h] [DEFINITIONS d...] [COMPONENTS c...])
function(course_library package)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;HEADER;PACKAGE;URL;SHA256" "DEFINITIONS;COMPONENTS")
  set(components "")
  if(arg_COMPONENTS)
    set(components COMPONENTS ${arg_COMPONENTS})
  endif()
  find_package(${package} QUIET ${components})
  if(TARGET ${arg_TARGET})
    return()
  endif()

  if(COURSE_EXTRA_INCLUDE AND arg_HEADER AND EXISTS "${COURSE_EXTRA_INCLUDE}/${arg_HEADER}")
    add_library(${arg_TARGET} INTERFACE IMPORTED)
    target_include_directories(${arg_TARGET} INTERFACE "${COURSE_EXTRA_INCLUDE}")
    target_compile_definitions(${arg_TARGET} INTERFACE ${arg_DEFINITIONS})
    return()
  endif()

  cmake_path(GET arg_URL FILENAME file)
  set(archive "${CMAKE_BINARY_DIR}/_deps/${package}-${file}")
  set(sha256 "")
  if(EXISTS "${archive}")
    file(SHA256 "${archive}" sha256)
  endif()
  if(NOT sha256 STREQUAL arg_SHA256)
    message(STATUS "${package} is not installed: downloading it")
    file(DOWNLOAD "${arg_URL}" "${archive}" STATUS status INACTIVITY_TIMEOUT 20)
    list(GET status 0 failed)
    list(GET status 1 why)
    if(NOT failed)
      file(SHA256 "${archive}" sha256)
      if(NOT sha256 STREQUAL arg_SHA256)
        set(failed TRUE)
        set(why "its SHA-256 is not the expected one")
      endif()
    endif()
    if(failed)
      file(REMOVE "${archive}")
      course_error(
        "${package} is not installed and could not be downloaded (${why}): apt install ${arg_PACKAGE}")
    endif()
  endif()
  FetchContent_Declare(${package} URL "${archive}" URL_HASH SHA256=${arg_SHA256}
    DOWNLOAD_EXTRACT_TIMESTAMP FALSE)
  set(BOOST_INCLUDE_LIBRARIES ${arg_COMPONENTS})
  FetchContent_MakeAvailable(${package})
endfunction()

course_library(fmt
  TARGET fmt::fmt HEADER fmt/format.h DEFINITIONS FMT_HEADER_ONLY PACKAGE libfmt-dev
  URL https://github.com/fmtlib/fmt/archive/refs/tags/10.2.1.tar.gz
  SHA256 1250e4cc58bf06ee631567523f48848dc4596133e163f02615c97f78bab6c811)
course_library(CLI11
  TARGET CLI11::CLI11 HEADER CLI/CLI.hpp PACKAGE libcli11-dev
  URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.5.0.tar.gz
  SHA256 17e02b4cddc2fa348e5dbdbb582c59a3486fa2b2433e70a0c3bacb871334fd55)
course_library(nlohmann_json
  TARGET nlohmann_json::nlohmann_json HEADER nlohmann/json.hpp PACKAGE nlohmann-json3-dev
  URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  SHA256 d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
course_library(Catch2
  TARGET Catch2::Catch2 HEADER catch2/catch.hpp PACKAGE catch2
  URL https://github.com/catchorg/Catch2/archive/refs/tags/v3.8.1.tar.gz
  SHA256 18b3f70ac80fccc340d8c6ff0f339b2ae64944782f8d2fca2bd705cf47cadb79)

course_library(ZLIB
  TARGET ZLIB::ZLIB PACKAGE zlib1g-dev
  URL https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz
  SHA256 9a93b2b7dfdac77ceba5a558a580e74667dd6fede4585b91eefb60f03b72df23)
if(NOT TARGET ZLIB::ZLIB)  # what zlib's own build calls it
  target_include_directories(zlibstatic INTERFACE "${zlib_SOURCE_DIR}" "${zlib_BINARY_DIR}")
  add_library(ZLIB::ZLIB ALIAS zlibstatic)
endif()

if(COURSE_BACKEND STREQUAL cpu)
  find_package(Threads REQUIRED)
  course_library(Boost
    COMPONENTS context
    TARGET Boost::context PACKAGE libboost-context-dev
    URL https://github.com/boostorg/boost/releases/download/boost-1.84.0/boost-1.84.0.tar.xz
    SHA256 2e64e5d79a738d0fa6fb546c6e5c2bd28f88d268a2a080546f74e5ff98f29d0e)
endif()

# NumPy makes the references that the tests tagged [numpy] read. The project's own environment, .venv,
# comes before the system's Python; -DPython3_EXECUTABLE=... comes before both.
if(NOT Python3_EXECUTABLE AND EXISTS "${CMAKE_SOURCE_DIR}/.venv/bin/python3")
  set(Python3_EXECUTABLE "${CMAKE_SOURCE_DIR}/.venv/bin/python3")
endif()
find_package(Python3 3.10 QUIET COMPONENTS Interpreter)
set(COURSE_HAVE_NUMPY FALSE)
if(Python3_Interpreter_FOUND)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import numpy" RESULT_VARIABLE failed ERROR_QUIET)
  if(failed EQUAL 0)
    set(COURSE_HAVE_NUMPY TRUE)
  endif()
endif()
if(NOT COURSE_HAVE_NUMPY)
  message(STATUS "No Python with NumPy: the tests tagged [numpy] are left out (apt install python3-numpy)")
endif()
