# Plug-ins that must be refused, for the tests of 8.2: in a folder of their own, each with one mistake.
set(folder "${CMAKE_BINARY_DIR}/broken_backends")
set(table "#include \"stage8_framework/02_backends/abi.h\"
static CourseBackend table;
extern \"C\" __attribute__((visibility(\"default\"))) const CourseBackend* course_backend() {
  table.abi_version = COURSE_ABI_VERSION, table.struct_bytes = sizeof table;
  @mistake@;
  return &table;
}
")
set(mistake_version "table.abi_version = COURSE_ABI_VERSION + 1")
set(mistake_bytes "table.struct_bytes = 8")
set(mistake_empty "table.name = \"empty\"")
set(mistake_null "return nullptr")
foreach(name IN ITEMS version bytes empty null symbol)
  set(mistake "${mistake_${name}}")
  set(text "int nothing;\n")
  if(mistake)
    string(CONFIGURE "${table}" text @ONLY)
  endif()
  file(CONFIGURE OUTPUT "${folder}/${name}.cpp" CONTENT "${text}")
  add_backend_plugin(broken_${name} gpu "${folder}/${name}.cpp")
  set_target_properties(course_broken_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${folder}")
endforeach()
target_compile_definitions(backends_test PRIVATE COURSE_BROKEN_FOLDER="${folder}")
