# A toolchain for aarch64 Linux on Debian of another architecture: the packages of the group `arm64` in
# scripts/packages.txt, with which what is built also runs here, in an emulator.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
find_program(COURSE_QEMU NAMES qemu-aarch64 qemu-aarch64-static DOC "Runs programs for aarch64")
mark_as_advanced(COURSE_QEMU)
if(COURSE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${COURSE_QEMU}")
endif()
