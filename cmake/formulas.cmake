# without_contraction(SOURCE...): these files keep a product and the sum behind it two roundings. Expressions of
# formula_list.h then have the same bits alone and merged into one kernel, compiled here or while a program runs.
function(without_contraction)
  set(option -ffp-contract=off)
  if(COURSE_BACKEND STREQUAL cuda)
    set(option --fmad=false)
  endif()
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${option})
endfunction()

# The text of formulas.h, for the compilers that 8.6 gives it to.
function(add_formulas_text target)
  set(file "${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/formulas.h")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" text)
  set(source "${CMAKE_BINARY_DIR}/generated/formulas_text.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT
    "namespace fusion {\nextern const char* const kFormulasText;\nconst char* const kFormulasText = R\"text(@text@)text\";\n}\n")
  target_sources(${target} PRIVATE "${source}")
endfunction()
