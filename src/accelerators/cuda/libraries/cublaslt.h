// NVIDIA's library of matrix products, opened when it is first needed. Functions, numbers and structures are declared here from
// its documentation (https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api); no header of the vendor's is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

using LtStatus = int;  // cublasStatus_t
using LtHandle = struct OpaqueLtHandle*;
using LtOperation = struct OpaqueLtOperation*;    // cublasLtMatmulDesc_t
using LtLayout = struct OpaqueLtLayout*;          // cublasLtMatrixLayout_t
using LtPreference = struct OpaqueLtPreference*;  // cublasLtMatmulPreference_t

// cublasLtMatmulAlgo_t: opaque; holds for the library's version and the kind of device that it was chosen on.
struct LtAlgorithm {
  uint64_t data[8];
};
// cublasLtMatmulHeuristicResult_t
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace;  // bytes
  LtStatus state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(LtHeuristic) == 96);

enum : LtStatus {
  lt_success = 0,
  lt_not_initialized = 1,
  lt_alloc_failed = 3,
  lt_not_supported = 15,
};
enum LtType : int { lt_f32 = 0, lt_f16 = 2, lt_bf16 = 14 };  // cudaDataType
inline constexpr int lt_compute_32f = 68;                    // fp32 inputs are multiplied as they are, not as TF32
enum LtOperationAttribute : int {
  lt_transpose_a = 3,   // int32_t: 1 is transposed
  lt_epilogue = 7,      // uint32_t
  lt_bias_pointer = 8,  // const void*
  lt_bias_type = 26,    // int32_t
};
inline constexpr uint32_t lt_epilogue_bias = 4;
enum LtLayoutAttribute : int {
  lt_batch_count = 5,  // int32_t
  lt_batch_step = 6,   // int64_t elements from one matrix to the next
};
enum LtPreferenceAttribute : int {
  lt_max_workspace = 1,    // uint64_t
  lt_reduction_mask = 3,   // uint32_t
  lt_min_alignment_a = 5,  // uint32_t bytes; B, C and D follow
};
// Sums that are split over K are added in fp32, and in the same order every time.
inline constexpr uint32_t lt_reduce_in_compute_type = 2;

struct CublasLt {
  std::string path;
  size_t version = 0;  // 130100

  LtStatus (*create)(LtHandle* handle) = nullptr;
  LtStatus (*destroy)(LtHandle handle) = nullptr;
  size_t (*get_version)() = nullptr;
  const char* (*status_name)(LtStatus status) = nullptr;
  const char* (*status_string)(LtStatus status) = nullptr;
  LtStatus (*operation_create)(LtOperation* operation, int compute_type, int scale_type) = nullptr;
  LtStatus (*operation_destroy)(LtOperation operation) = nullptr;
  LtStatus (*operation_set)(LtOperation operation, int attribute, const void* value, size_t size) = nullptr;
  LtStatus (*layout_create)(LtLayout* layout, int type, uint64_t rows, uint64_t columns, int64_t leading) = nullptr;
  LtStatus (*layout_destroy)(LtLayout layout) = nullptr;
  LtStatus (*layout_set)(LtLayout layout, int attribute, const void* value, size_t size) = nullptr;
  LtStatus (*preference_create)(LtPreference* preference) = nullptr;
  LtStatus (*preference_destroy)(LtPreference preference) = nullptr;
  LtStatus (*preference_set)(LtPreference preference, int attribute, const void* value, size_t size) = nullptr;
  LtStatus (*heuristics)(LtHandle handle, LtOperation operation, LtLayout a, LtLayout b, LtLayout c, LtLayout d,
                         LtPreference preference, int wanted, LtHeuristic* results, int* found) = nullptr;
  // Returns whether an algorithm chosen for another problem fits this one; may be missing.
  LtStatus (*check_algorithm)(LtHandle handle, LtOperation operation, LtLayout a, LtLayout b, LtLayout c, LtLayout d,
                              const LtAlgorithm* algorithm, LtHeuristic* result) = nullptr;
  LtStatus (*multiply)(LtHandle handle, LtOperation operation, const void* alpha, const void* a, LtLayout a_layout,
                       const void* b, LtLayout b_layout, const void* beta, const void* c, LtLayout c_layout, void* d,
                       LtLayout d_layout, const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                       StreamHandle stream) = nullptr;

  // "cuBLASLt 13.1.0 (/usr/local/cuda/lib64/libcublasLt.so.13)"
  std::string description() const;
  // "CUBLAS_STATUS_NOT_INITIALIZED (1): the library was not initialized", as the library words it.
  std::string status_text(LtStatus status) const;
};

// File names in order of preference for a driver (13000; 0: not known): of its own major version; then older ones,
// which it runs too; then newer ones, which report themselves that they do not run.
std::vector<std::string> cublaslt_files(int driver_version);

// Null when there is none that can be used; `problem` then says why, and what was looked for.
std::unique_ptr<CublasLt> open_cublaslt(int driver_version, std::string& problem);

// The same, opened once per process and logged once.
const CublasLt* cublaslt(int driver_version, std::string& problem);

}  // namespace anyaccel::cuda
