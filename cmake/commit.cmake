# Writes HEADER with the commit that SOURCE is checked out at, "+changes" behind it where files differ from
# it; "unknown" without git. Run by every build, and leaves the file alone where nothing is new:
#   cmake -DSOURCE=... -DHEADER=... [-DCOMMIT=known] -P commit.cmake

cmake_minimum_required(VERSION 3.24...3.31)
set(commit "${COMMIT}")
if(NOT commit)
  execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed EQUAL 0)
    set(commit unknown)
  else()
    execute_process(COMMAND git -C "${SOURCE}" status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(changes)
      string(APPEND commit "+changes")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define COURSE_COMMIT \"@commit@\"\n" @ONLY)
