# What the faces of Ascend, Cambricon, Tecorigin and Habana share. The symbols of the engine stay inside each library: a program may
# have an engine of its own.
add_library(simulator_queue_face STATIC ${CMAKE_CURRENT_SOURCE_DIR}/queue_face/process.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/queue_face/memory.cpp ${CMAKE_CURRENT_SOURCE_DIR}/queue_face/stream.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/queue_face/capture.cpp)
target_include_directories(simulator_queue_face PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(simulator_queue_face PUBLIC simulator_engine PRIVATE anyaccel_warnings)
set_target_properties(simulator_queue_face PROPERTIES POSITION_INDEPENDENT_CODE ON)
anyaccel_optimize(simulator_queue_face 1)
anyaccel_unity(simulator_queue_face)

# A vendor's runtime by its real file name, in a folder of its own; other sources than its own ones follow.
function(add_queue_runtime target folder file)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  # Nothing in the library calls the hooks: they would not be taken out of an archive.
  add_library(${target} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${folder}.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/queue_face/hooks.cpp ${ARGN})
  target_link_libraries(${target} PRIVATE simulator_queue_face anyaccel_warnings)
  anyaccel_optimize(${target} 1)
  anyaccel_unity(${target})
  target_link_options(${target} PRIVATE -Wl,-soname,${file}
    -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/queue_face/exports.map)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX ""
    LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/queue_face/exports.map
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulators/${folder})
endfunction()

add_queue_runtime(acl_sim ascend libascendcl.so)
add_queue_runtime(cnrt_sim neuware libcnrt.so)
add_queue_runtime(sdaart_sim tecorigin libsdaart.so)
# Habana's has its collectives in it.
add_queue_runtime(synapse_sim habana libSynapse.so habana/graph.cpp habana/tensor_nodes.cpp habana/recipe_file.cpp habana/hccl.cpp libraries/library.cpp ${collective_sources})
target_compile_definitions(synapse_sim PRIVATE SIM_DRIVER="libSynapse.so")
target_link_libraries(synapse_sim PRIVATE ${CMAKE_DL_LIBS})

# Their libraries of collectives.
add_vendor_library(hccl_sim ascend libhccl.so libascendcl.so ascend/hccl.cpp ${collective_sources})
add_vendor_library(cncl_sim neuware libcncl.so libcnrt.so neuware/cncl.cpp ${collective_sources})
add_vendor_library(tccl_sim tecorigin libtccl.so libsdaart.so tecorigin/tccl.cpp ${collective_sources})

# Ascend's operators; the real libopapi.so needs libnnopbase.so too.
add_vendor_library(nnopbase_sim ascend libnnopbase.so libascendcl.so ascend/nnopbase.cpp ascend/nn_tensor.cpp)
add_vendor_library(opapi_sim ascend libopapi.so libascendcl.so ascend/opapi.cpp ascend/elements.cpp ascend/formats.cpp ascend/optimizer.cpp ascend/nn_tensor.cpp libraries/product.cpp)
target_link_libraries(opapi_sim PRIVATE nnopbase_sim)

# Cambricon's operators.
add_vendor_library(cnnl_sim neuware libcnnl.so libcnrt.so neuware/cnnl.cpp libraries/product.cpp)
