# Stand-ins for the libraries beside NVIDIA's driver: ANYACCEL_CUDA_LIBRARY_PATH names their folder in tests.
add_vendor_library(nvrtc_sim cuda libnvrtc.so.13 libcuda.so.1 cuda_libraries/nvrtc.cpp cuda_libraries/nvrtc_source.cpp libraries/source_text.cpp)
add_vendor_library(nvml_sim cuda libnvidia-ml.so.1 libcuda.so.1 cuda_libraries/nvml.cpp)
set(cublaslt_sources cuda_libraries/cublaslt.cpp cuda_libraries/cublaslt_problem.cpp libraries/product.cpp)
add_vendor_library(cublaslt_sim cuda libcublasLt.so.13 libcuda.so.1 ${cublaslt_sources})
# An older version, for machines that have two: in a folder of its own.
add_vendor_library(cublaslt12_sim cuda12 libcublasLt.so.12 libcuda.so.1 ${cublaslt_sources})
target_compile_definitions(cublaslt12_sim PRIVATE SIM_CUBLASLT_VERSION=120905)
add_vendor_library(nccl_sim cuda libnccl.so.2 libcuda.so.1 cuda_libraries/nccl.cpp ${collective_sources})
add_vendor_library(cufile_sim cuda libcufile.so.0 libcuda.so.1 cuda_libraries/cufile.cpp)
