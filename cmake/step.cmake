# add_step() and what it is made of. Kernel sources end in .hip on every backend; the language that
# compiles them is set here.

# An executable of one .hip file, built into build/<backend>/<folder>/.
function(add_gpu_executable name source folder)
  set_source_files_properties("${source}" PROPERTIES LANGUAGE ${COURSE_LANGUAGE})
  add_executable(${name} "${source}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}")
  get_property(instances GLOBAL PROPERTY COURSE_INSTANCES)
  target_link_libraries(${name} PRIVATE ${instances} gpu course_warnings)
endfunction()

# What a step's header declares `extern template`, compiled once: a library that this step and all
# later ones link. Every other file that includes the header is spared its kernels, of which nvcc and
# clang compile all that are named, needed or not.
function(add_instances name source)
  set_source_files_properties("${source}" PROPERTIES LANGUAGE ${COURSE_LANGUAGE})
  add_library(${name} STATIC "${source}")
  get_property(earlier GLOBAL PROPERTY COURSE_INSTANCES)
  target_link_libraries(${name} PRIVATE ${earlier} gpu course_warnings)
  set_property(GLOBAL PROPERTY COURSE_INSTANCES ${name} ${earlier})
endfunction()

# Registers `command` under ctest: once on a GPU, and on the CPU backend once for each size of a
# wave, as NAME (32) and NAME.wave64.
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
  endif()
  foreach(wave IN LISTS waves)
    set(test ${name})
    set(environment "")
    if(wave)
      list(APPEND environment HIP_CPU_WAVE=${wave})
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

# A Catch2 program of one .hip file, and its ctest entries. Without NumPy the cases tagged [numpy]
# are left out. To ThreadSanitizer every GPU thread is a thread, which takes it about 10 ms a block: of
# the steps only those cases are run there that launch every version at a small size, which are again
# the ones tagged [numpy]. AddressSanitizer is spared the rest of the longest tests, too, which take
# it minutes. The target `course_tests` builds what ctest runs of these, and no program.
function(add_gpu_catch_test name source folder label)
  add_gpu_executable(${name} "${source}" "${folder}")
  target_link_libraries(${name} PRIVATE course_testing)
  set(cases "")
  if(NOT COURSE_HAVE_REFERENCES)
    set(cases "~[numpy]~[.]")  # Catch2 v2 takes a filter that only excludes as asking for hidden cases
  endif()
  if(COURSE_SANITIZE STREQUAL thread AND NOT name MATCHES "^(race|device)_test$")
    file(STRINGS "${source}" numpy_cases REGEX "\\[numpy\\]")
    # A training of the last two steps has so many blocks that even one takes many minutes.
    if(name MATCHES "^train_(cnn|shakespeare)_test$" OR NOT numpy_cases OR NOT COURSE_HAVE_REFERENCES)
      return()
    endif()
    set(cases "[numpy]")
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

# Each header must compile alone, so that a learner can include it without knowing what it needs. The
# target `headers` is part of the plain CPU build; elsewhere it is built when asked for, being slow.
function(add_header_check header)
  string(MAKE_C_IDENTIFIER "${header}" name)
  set(source "${CMAKE_BINARY_DIR}/headers/${name}.hip")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"@header@\"\n" @ONLY)
  set_source_files_properties("${source}" PROPERTIES LANGUAGE ${COURSE_LANGUAGE})
  if(NOT TARGET headers)
    add_library(headers OBJECT)
    if(COURSE_SANITIZE OR NOT COURSE_BACKEND STREQUAL cpu)
      set_target_properties(headers PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
    target_link_libraries(headers PRIVATE gpu course_warnings course_testing)
  endif()
  target_sources(headers PRIVATE "${source}")
endfunction()

# A step of the course: add_step(stage1_vector/01_vector_add) builds the program `vector_add` and the
# tests `vector_add_test`, registers both with ctest under the label `stage1`, and has the step's
# headers compiled alone; each *_instances.hip becomes a library.
function(add_step path)
  string(REGEX MATCH "^((stage[0-9]+)_[a-z0-9_]+)/[0-9][0-9]_([a-z0-9_]+)$" matched "${path}")
  if(NOT matched)
    course_error("add_step(${path}): expected stageN_name/NN_step.")
  endif()
  set(stage ${CMAKE_MATCH_1})
  set(label ${CMAKE_MATCH_2})
  set(name ${CMAKE_MATCH_3})
  set(folder "${CMAKE_SOURCE_DIR}/${path}")

  file(GLOB instances CONFIGURE_DEPENDS "${folder}/*_instances.hip")
  foreach(source IN LISTS instances)
    get_filename_component(library "${source}" NAME_WE)
    add_instances(${library} "${source}")
  endforeach()
  add_gpu_executable(${name} "${folder}/${name}.hip" ${stage})
  if(NOT COURSE_SANITIZE STREQUAL thread)
    add_gpu_test(${name} ${label} COMMAND ${name} --quick)
  endif()
  add_gpu_catch_test(${name}_test "${folder}/${name}_test.hip" ${stage} ${label})
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}" "${folder}/*.h")
  foreach(header IN LISTS headers)
    add_header_check(${header})
  endforeach()
endfunction()
