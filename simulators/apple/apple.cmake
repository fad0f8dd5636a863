# The Objective-C runtime and Metal, in a folder of their own (ANYACCEL_MPS_LIBRARY_PATH names it in tests), under the names of the
# real files. Everything is in the runtime's library, since a program's objects are all of one engine; Metal is its C functions.
add_library(objc_sim SHARED apple/objc.cpp apple/messages.cpp apple/objc_functions.cpp apple/foundation.cpp apple/device.cpp
  apple/queue.cpp apple/encoder.cpp apple/library.cpp apple/msl_source.cpp libraries/source_text.cpp
  $<TARGET_OBJECTS:simulator_kernels> $<TARGET_OBJECTS:simulator_test_kernels>)
target_include_directories(objc_sim PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(objc_sim PRIVATE simulator_engine anyaccel_warnings)
anyaccel_optimize(objc_sim 1)
anyaccel_unity(objc_sim)
set_target_properties(objc_sim PROPERTIES UNITY_BUILD_BATCH_SIZE 5)  # in one batch it takes ten seconds
set(apple_exports ${CMAKE_CURRENT_SOURCE_DIR}/apple/exports.map)
target_link_options(objc_sim PRIVATE -Wl,-soname,libobjc.A.dylib -Wl,--version-script=${apple_exports})
add_library(metal_sim SHARED apple/metal_library.cpp)
target_link_libraries(metal_sim PRIVATE objc_sim anyaccel_warnings)
target_link_options(metal_sim PRIVATE -Wl,-soname,Metal -Wl,--version-script=${apple_exports})
set_target_properties(objc_sim PROPERTIES OUTPUT_NAME libobjc.A SUFFIX .dylib)
set_target_properties(metal_sim PROPERTIES OUTPUT_NAME Metal SUFFIX "" BUILD_RPATH "$ORIGIN")
set_target_properties(objc_sim metal_sim PROPERTIES PREFIX "" LINK_DEPENDS ${apple_exports}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulators/apple)
