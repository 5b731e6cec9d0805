# The plug-in `own` of 8.2: the launchers of stages 1 to 7 behind one table.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/own/*.cpp"
  "${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/own/*.hip")
needed_libraries(libraries stage8_framework/02_backends/own)
list(REMOVE_ITEM libraries step_backends)
add_backend_plugin(own "${libraries};gpu" ${sources})
target_compile_definitions(course_own PRIVATE COURSE_OWN_NAME="own")
