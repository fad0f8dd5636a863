// Compiled, never run: what src/accelerators/cpu/onednn.cpp, which includes the header of oneDNN 2, takes for granted of oneDNN 3,
// against the header of that.
#include <dnnl.h>

#include <type_traits>

namespace {

static_assert(DNNL_VERSION_MAJOR == 3);

using Md = const_dnnl_memory_desc_t;
template <class Function, Function* function>
constexpr bool declared = true;

static_assert(std::is_pointer_v<dnnl_memory_desc_t> && std::is_pointer_v<Md>);
// NOLINTBEGIN(misc-redundant-expression)
static_assert(declared<dnnl_status_t(dnnl_memory_desc_t*, int, const dnnl_dims_t, dnnl_data_type_t, const dnnl_dims_t),
                       dnnl_memory_desc_create_with_strides>);
static_assert(declared<dnnl_status_t(dnnl_memory_desc_t), dnnl_memory_desc_destroy>);
static_assert(
    declared<dnnl_status_t(dnnl_primitive_desc_t*, dnnl_engine_t, Md, Md, Md, Md, const_dnnl_primitive_attr_t),
             dnnl_matmul_primitive_desc_create>);
// Functions of both versions that take descriptions.
static_assert(declared<size_t(Md), dnnl_memory_desc_get_size>);
static_assert(declared<Md(const_dnnl_primitive_desc_t, dnnl_query_t, int), dnnl_primitive_desc_query_md>);
static_assert(declared<dnnl_status_t(dnnl_memory_t*, Md, dnnl_engine_t, void*), dnnl_memory_create>);
// And others.
static_assert(declared<const dnnl_version_t*(), dnnl_version>);
static_assert(declared<dnnl_status_t(dnnl_engine_t*, dnnl_engine_kind_t, size_t), dnnl_engine_create>);
static_assert(declared<dnnl_status_t(dnnl_engine_t), dnnl_engine_destroy>);
static_assert(declared<dnnl_status_t(dnnl_stream_t*, dnnl_engine_t, unsigned), dnnl_stream_create>);
static_assert(declared<dnnl_status_t(dnnl_stream_t), dnnl_stream_destroy>);
static_assert(declared<dnnl_status_t(dnnl_primitive_attr_t*), dnnl_primitive_attr_create>);
static_assert(declared<dnnl_status_t(dnnl_primitive_attr_t), dnnl_primitive_attr_destroy>);
static_assert(
    declared<dnnl_status_t(dnnl_primitive_attr_t, dnnl_scratchpad_mode_t), dnnl_primitive_attr_set_scratchpad_mode>);
static_assert(declared<dnnl_status_t(dnnl_primitive_desc_t), dnnl_primitive_desc_destroy>);
static_assert(declared<dnnl_status_t(dnnl_primitive_t*, const_dnnl_primitive_desc_t), dnnl_primitive_create>);
static_assert(declared<dnnl_status_t(dnnl_primitive_t), dnnl_primitive_destroy>);
static_assert(declared<dnnl_status_t(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t*),
                       dnnl_primitive_execute>);
static_assert(declared<dnnl_status_t(dnnl_memory_t), dnnl_memory_destroy>);
static_assert(declared<dnnl_status_t(dnnl_memory_t, void*), dnnl_memory_set_data_handle>);
// NOLINTEND(misc-redundant-expression)

// The values of version 2.
static_assert(DNNL_ARG_SRC == 1 && DNNL_ARG_WEIGHTS == 33 && DNNL_ARG_DST == 17 && DNNL_ARG_SCRATCHPAD == 80);
static_assert(dnnl_bf16 == 2 && dnnl_f32 == 3 && dnnl_cpu == 1 && dnnl_stream_default_flags == 1);
static_assert(dnnl_scratchpad_mode_user == 1 && dnnl_query_scratchpad_md == 136);
static_assert(dnnl_success == 0 && dnnl_out_of_memory == 1 && dnnl_unimplemented == 3);
static_assert(DNNL_RUNTIME_SEQ == 1 && DNNL_RUNTIME_OMP == 2);
static_assert(DNNL_MAX_NDIMS == 12);

}  // namespace
