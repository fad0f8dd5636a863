# Stand-ins for the libraries beside NVIDIA's driver, with the real files' names, in one folder with libcuda.so.1:
# ANYACCEL_CUDA_LIBRARY_PATH names it in tests.
function(add_cuda_library target file)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/cuda_libraries/)
  # Of the engine only the settings: the engine itself is the one in libcuda.so.1.
  add_library(${target} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/cuda_libraries/library.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/engine/settings.cpp ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE anyaccel_warnings Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,-soname,${file})
  anyaccel_unity(${target})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX "" CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulators/cuda)
endfunction()

add_cuda_library(nvrtc_sim libnvrtc.so.13 nvrtc.cpp nvrtc_source.cpp)
add_cuda_library(nvml_sim libnvidia-ml.so.1 nvml.cpp)
set(cublaslt_sources cublaslt.cpp cublaslt_problem.cpp product.cpp)
add_cuda_library(cublaslt_sim libcublasLt.so.13 ${cublaslt_sources})
# An older version, for machines that have two: in a folder of its own.
add_cuda_library(cublaslt12_sim libcublasLt.so.12 ${cublaslt_sources})
target_compile_definitions(cublaslt12_sim PRIVATE SIM_CUBLASLT_VERSION=120905)
set_target_properties(cublaslt12_sim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulators/cuda12)
add_cuda_library(nccl_sim libnccl.so.2 nccl.cpp collective.cpp rendezvous.cpp product.cpp)
