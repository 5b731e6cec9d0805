# without_contraction(SOURCE...): these files keep a product and the sum behind it two roundings. Expressions of
# formula_list.inc then have the same bits alone and merged into one kernel, compiled here or while a program runs.
function(without_contraction)
  set(option -ffp-contract=off)
  if(COURSE_BACKEND STREQUAL cuda)
    set(option --fmad=false)
  endif()
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${option})
endfunction()
