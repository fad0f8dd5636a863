# A CUDA driver library, loaded by its real name from a folder of its own (ANYACCEL_CUDA_LIBRARY_PATH names it in tests). The
# symbols of the engine stay inside: a program may have an engine of its own.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cpp)
add_library(cuda_sim MODULE ${cuda_sources} $<TARGET_OBJECTS:simulator_kernels> $<TARGET_OBJECTS:simulator_test_kernels>
  $<TARGET_OBJECTS:simulator_tuned_kernels> $<TARGET_OBJECTS:simulator_tuned_test_kernels>)
target_include_directories(cuda_sim PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(cuda_sim PRIVATE simulator_engine anyaccel_warnings)
anyaccel_optimize(cuda_sim 1)
anyaccel_unity(cuda_sim)
target_link_options(cuda_sim PRIVATE -Wl,-soname,libcuda.so.1
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cuda/exports.map)
set_target_properties(cuda_sim PROPERTIES PREFIX "" OUTPUT_NAME libcuda.so.1 SUFFIX ""
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/exports.map
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulators/cuda)
