# The plug-in `own` of 8.2: the launchers of stages 1 to 7 behind one table, and the fused operations of 8.6.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/own/*.cpp"
  "${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/own/*.hip" "${CMAKE_SOURCE_DIR}/stage8_framework/06_fusion/own/*.cpp")
needed_libraries(libraries stage8_framework/02_backends/own)
needed_libraries(of_fusion stage8_framework/06_fusion/own)
list(APPEND libraries ${of_fusion})
list(REMOVE_DUPLICATES libraries)
list(REMOVE_ITEM libraries step_backends)
# What the plug-in and 8.6 both reduce with.
set(reductions "${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/own/reductions.hip")
list(REMOVE_ITEM sources "${reductions}")
add_step_library(own_reductions "step_tensor;course_kernels" "${reductions}")
target_link_libraries(step_fusion PRIVATE own_reductions)
without_contraction("${CMAKE_SOURCE_DIR}/stage8_framework/02_backends/own/elementwise.hip")
add_backend_plugin(own "own_reductions;${libraries};gpu" ${sources})
target_compile_definitions(course_own PRIVATE COURSE_OWN_NAME="own")
# The interpreter has the bits of the operations that it stands for.
get_target_property(of_fusion step_fusion SOURCES)
list(FILTER of_fusion INCLUDE REGEX "\\.hip$")
without_contraction(${of_fusion})
