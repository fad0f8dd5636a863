// The part of cuBLASLt's interface that is simulated: numbers and structures of its documentation, objects behind its
// descriptors. https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulators/libraries/product.h"

namespace sim_library {

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

enum ComputeType : int {
  kCompute16F = 64,
  kCompute32F = 68,
  kCompute32FPedantic = 69,
  kCompute32FFast16F = 74,
  kCompute32FFastBf16 = 75,
  kCompute32FFastTf32 = 77,
};
enum Epilogue : int { kEpilogueDefault = 1, kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueGelu = 32 };

// The problem for which an algorithm is chosen, in 64 bytes, as the library's opaque cublasLtMatmulAlgo_t has them.
struct Algo {
  std::uint32_t magic;    // of the library's version
  std::uint16_t arch;     // ten times the compute capability
  std::uint16_t variant;  // its position among those offered
  std::uint64_t problem;  // hash of types, shape and epilogue
  std::uint64_t workspace;
  std::uint8_t align_a, align_b, align_c, align_d, align_bias;  // bytes that pointers must be multiples of
  std::uint8_t reserved[35];
};
static_assert(sizeof(Algo) == 64);

struct HeuristicResult {
  Algo algo;
  std::size_t workspace;
  cublasStatus_t state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

struct Context {
  int device;
};
struct Layout {
  int type = 0;
  int order = 0;  // 0: columns one after the other; 1: rows
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0;
  std::int32_t batch = 1;
  std::int64_t batch_step = 0;
};
struct MatmulDesc {
  int compute = 0, scale = 0;
  std::int32_t pointer_mode = 0, transpose_a = 0, transpose_b = 0, transpose_c = 0;
  std::uint32_t epilogue = kEpilogueDefault;
  std::uint64_t bias = 0;
  std::int64_t bias_batch_step = 0;
  std::int32_t bias_type = -1;
  std::int8_t fast_accumulation = 0;
  std::int32_t sm_target = 0;
};
struct Preference {
  std::uint64_t max_workspace = 0;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  std::uint32_t reduction_mask = 7, search_mode = 0, implementation_mask = ~0U;
  float max_waves = 0;
};

// A call that was found right.
struct Problem {
  Product product;
  std::size_t a_bytes = 0, b_bytes = 0, c_bytes = 0, d_bytes = 0, bias_bytes = 0;  // from the pointers on
  std::size_t a_one_bytes = 0, d_one_bytes = 0;                                    // without the rest of a batch
  bool apart = false;  // matrices of a batch of A or D have gaps between them
  std::uint64_t hash = 0;
};
// Checks descriptors as the documentation of cublasLtMatmul() says; `why` gets a sentence when they are wrong.
cublasStatus_t check_problem(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                             Problem* problem, const char** why);

}  // namespace sim_library
