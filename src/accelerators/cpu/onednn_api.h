// The part of oneDNN's C interface that onednn.cpp uses, under oneDNN's names (but macros). oneDNN's own header is that of version 2 or of version 3, and
// we open either. tests/cpu/onednn_declarations.cpp compares these declarations with both. The versions differ in how
// matrices and products are described (https://uxlfoundation.github.io/oneDNN/v3/dev_guide_transition_to_v3.html).
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::cpu::onednn::api {

enum dnnl_status_t : int { dnnl_success = 0, dnnl_out_of_memory = 1, dnnl_unimplemented = 3 };
enum dnnl_data_type_t : int { dnnl_bf16 = 2, dnnl_f32 = 3 };
enum dnnl_engine_kind_t : int { dnnl_cpu = 1 };
enum dnnl_scratchpad_mode_t : int { dnnl_scratchpad_mode_user = 1 };
enum dnnl_query_t : int { dnnl_query_scratchpad_md = 136 };
enum dnnl_cpu_isa_t : int {};
constexpr unsigned dnnl_stream_default_flags = 1;
constexpr unsigned kRuntimeSeq = 1, kRuntimeOmp = 2;
constexpr int kArgSource = 1, kArgOut = 17, kArgWeights = 33, kArgScratchpad = 80;

using dnnl_dims_t = int64_t[12];
using dnnl_engine_t = struct dnnl_engine*;
using dnnl_stream_t = struct dnnl_stream*;
using dnnl_primitive_attr_t = struct dnnl_primitive_attr*;
using dnnl_primitive_desc_t = struct dnnl_primitive_desc*;
using dnnl_primitive_t = struct dnnl_primitive*;
using dnnl_memory_t = struct dnnl_memory*;

struct dnnl_version_t {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};
struct dnnl_exec_arg_t {
  int arg;
  dnnl_memory_t memory;
};

// The description of a matrix. In version 2 the caller has the memory for it, and one for a product; we do not look into them. In version 3
// it is an object of the library, dnnl_memory_desc_t a pointer to one, and const_dnnl_memory_desc_t what is a pointer to a constant
// dnnl_memory_desc_t in version 2.
struct Matrix;
struct alignas(8) Matrix2 {
  std::byte bytes[1024];
};
struct alignas(8) Product2 {
  std::byte bytes[8192];
};

// Never defined: their types are those of the pointers that dlsym gives.
const dnnl_version_t* dnnl_version();
dnnl_cpu_isa_t dnnl_get_effective_cpu_isa();
dnnl_status_t dnnl_engine_create(dnnl_engine_t* engine, dnnl_engine_kind_t kind, size_t index);
dnnl_status_t dnnl_engine_destroy(dnnl_engine_t engine);
dnnl_status_t dnnl_stream_create(dnnl_stream_t* stream, dnnl_engine_t engine, unsigned flags);
dnnl_status_t dnnl_stream_destroy(dnnl_stream_t stream);
size_t dnnl_memory_desc_get_size(const Matrix* description);
dnnl_status_t dnnl_primitive_attr_create(dnnl_primitive_attr_t* attributes);
dnnl_status_t dnnl_primitive_attr_destroy(dnnl_primitive_attr_t attributes);
dnnl_status_t dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t attributes, dnnl_scratchpad_mode_t mode);
dnnl_status_t dnnl_primitive_desc_destroy(dnnl_primitive_desc_t product);
const Matrix* dnnl_primitive_desc_query_md(const struct dnnl_primitive_desc* product, dnnl_query_t what, int index);
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t* primitive, const struct dnnl_primitive_desc* product);
dnnl_status_t dnnl_primitive_destroy(dnnl_primitive_t primitive);
dnnl_status_t dnnl_primitive_execute(const struct dnnl_primitive* primitive, dnnl_stream_t stream, int count,
                                     const dnnl_exec_arg_t* arguments);
dnnl_status_t dnnl_memory_create(dnnl_memory_t* memory, const Matrix* description, dnnl_engine_t engine, void* data);
dnnl_status_t dnnl_memory_destroy(dnnl_memory_t memory);
dnnl_status_t dnnl_memory_set_data_handle(dnnl_memory_t memory, void* data);
// Version 2.
dnnl_status_t dnnl_memory_desc_init_by_strides(Matrix2* description, int ndims, const dnnl_dims_t dims,
                                               dnnl_data_type_t type, const dnnl_dims_t strides);
dnnl_status_t dnnl_matmul_desc_init(Product2* product, const Matrix* x, const Matrix* w, const Matrix* bias,
                                    const Matrix* out);
dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t* description, const Product2* product,
                                         const struct dnnl_primitive_attr* attributes, dnnl_engine_t engine,
                                         const struct dnnl_primitive_desc* forward);
// Version 3.
dnnl_status_t dnnl_memory_desc_create_with_strides(Matrix** description, int ndims, const dnnl_dims_t dims,
                                                   dnnl_data_type_t type, const dnnl_dims_t strides);
dnnl_status_t dnnl_memory_desc_destroy(Matrix* description);
dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t* description, dnnl_engine_t engine,
                                                const Matrix* x, const Matrix* w, const Matrix* bias, const Matrix* out,
                                                const struct dnnl_primitive_attr* attributes);

}  // namespace anyaccel::cpu::onednn::api
