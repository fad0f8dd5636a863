// Declares the part of Cambricon's library of operators (CNNL, libcnnl.so) that this accelerator uses, in our own
// words. CNNL's header is not public; these declarations are derived from Cambricon's open library mlu-ops
// (github.com/Cambricon/mlu-ops), which once wrapped these functions under its own names and passes its numbers to CNNL
// unchanged:
//
//  - bangc-ops/kernels/matmul/matmul.cpp and bangc-ops/kernels/utils/cnnl_helper.h at commit 896c1be7 (June 2023): names, the order of
//    arguments, and that types, layouts, attributes and statuses have the same numbers;
//  - bangc-ops/mlu_op.h there: the numbers, and for each function which types and shapes it takes;
//  - mlu_op.h and core/cnnl_helper.cpp at 73adc65d (April 2026): the number of bfloat16, handed over in the same way.
//
// Only the names of the modes of activations, softmax and flash attention are known: those ops stay on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::mlu {

using CnnlStatus = int;  // 0: success
using CnnlObject = void*;

enum CnnlType : int { cnnl_f16 = 1, cnnl_f32 = 2, cnnl_bf16 = 17 };
inline constexpr int cnnl_layout_array = 4;

// cnnlMatMulDescAttribute_t. The values are int32.
inline constexpr int cnnl_compute_type = 0, cnnl_transpose_b = 4, cnnl_allow_tf32 = 10;

// A product takes matrices of fewer bytes than this.
inline constexpr int64_t cnnl_most_bytes = int64_t{1} << 31;

// X(name, parameters); all functions return a CnnlStatus.
#define ANYACCEL_CNNL_FUNCTIONS(X)                                                                                 \
  X(cnnlCreate, (CnnlObject * handle))                                                                             \
  X(cnnlDestroy, (CnnlObject handle))                                                                              \
  X(cnnlSetQueue, (CnnlObject handle, void* queue))                                                                \
  X(cnnlCreateTensorDescriptor, (CnnlObject * tensor))                                                             \
  X(cnnlDestroyTensorDescriptor, (CnnlObject tensor))                                                              \
  X(cnnlSetTensorDescriptor, (CnnlObject tensor, int layout, int type, int dimensions, const int* sizes))          \
  X(cnnlMatMulDescCreate, (CnnlObject * matmul))                                                                   \
  X(cnnlMatMulDescDestroy, (CnnlObject matmul))                                                                    \
  X(cnnlSetMatMulDescAttr, (CnnlObject matmul, int attribute, const void* value, size_t bytes))                    \
  X(cnnlMatMulAlgoCreate, (CnnlObject * algorithm))                                                                \
  X(cnnlMatMulAlgoDestroy, (CnnlObject algorithm))                                                                 \
  X(cnnlCreateMatMulHeuristicResult, (CnnlObject * result))                                                        \
  X(cnnlDestroyMatMulHeuristicResult, (CnnlObject result))                                                         \
  X(cnnlGetMatMulAlgoHeuristic, (CnnlObject handle, CnnlObject matmul, CnnlObject a, CnnlObject b, CnnlObject c,   \
                                 CnnlObject d, CnnlObject preference, int asked, CnnlObject* results, int* found)) \
  X(cnnlGetMatMulHeuristicResult, (CnnlObject result, CnnlObject algorithm, size_t * workspace))                   \
  X(cnnlMatMul_v2,                                                                                                 \
    (CnnlObject handle, CnnlObject matmul, CnnlObject algorithm, const void* alpha, CnnlObject a_tensor,           \
     const void* a, CnnlObject b_tensor, const void* b, const void* beta, CnnlObject c_tensor, void* c,            \
     void* workspace, size_t workspace_bytes, CnnlObject d_tensor, void* d))                                       \
  X(cnnlGetAddNWorkspaceSize,                                                                                      \
    (CnnlObject handle, const CnnlObject* tensors, uint32_t count, CnnlObject out_tensor, size_t* workspace))      \
  X(cnnlAddN_v2, (CnnlObject handle, const CnnlObject* tensors, const void* const* inputs, uint32_t count,         \
                  CnnlObject out_tensor, void* out, void* workspace, size_t workspace_bytes))

struct CnnlApi {
#define ANYACCEL_DECLARE(name, parameters) CnnlStatus(*name) parameters = nullptr;
  ANYACCEL_CNNL_FUNCTIONS(ANYACCEL_DECLARE)
#undef ANYACCEL_DECLARE
  const char* (*cnnlGetErrorString)(CnnlStatus status) = nullptr;  // optional
};

}  // namespace anyaccel::mlu
