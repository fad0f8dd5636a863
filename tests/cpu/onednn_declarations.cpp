// Compiled, never run: the declarations of src/accelerators/cpu/onednn_api.h against oneDNN's header, of version 2 or 3.
#include <dnnl.h>

#include <type_traits>

#include "accelerators/cpu/onednn_api.h"

namespace {

namespace ours = anyaccel::cpu::onednn::api;

// A type of ours and one of oneDNN that functions pass in the same way.
template <class Ours, class Theirs>
constexpr bool same = std::is_same_v<Ours, Theirs>;
template <class Ours, class Theirs>
requires(std::is_enum_v<Ours> || std::is_enum_v<Theirs>) constexpr bool same<Ours, Theirs> = sizeof(Ours) ==
                                                                                                 sizeof(Theirs) &&
                                                                                             !std::is_pointer_v<Theirs>;
template <class Ours, class Theirs>  // pointers to what only the library knows, which have their own names here
constexpr bool same<Ours*, Theirs*> = std::is_class_v<Ours> ? std::is_class_v<Theirs> &&
                                                                  (std::is_const_v<Ours> == std::is_const_v<Theirs>)
                                                            : same<Ours, Theirs>;
template <>  // version 2 takes the description of any kind of op
constexpr bool same<const ours::Product2*, const void*> = true;

template <class Ours, class Theirs>
constexpr bool same_function = false;
template <class Ours, class... OurArguments, class Theirs, class... TheirArguments>
requires(sizeof...(OurArguments) ==
         sizeof...(TheirArguments)) constexpr bool same_function<Ours(OurArguments...), Theirs(TheirArguments...)> =
    same<Ours, Theirs> && (same<OurArguments, TheirArguments> && ...);

#define SAME(function) static_assert(same_function<decltype(ours::function), decltype(::function)>)
SAME(dnnl_version);
SAME(dnnl_get_effective_cpu_isa);
SAME(dnnl_engine_create);
SAME(dnnl_engine_destroy);
SAME(dnnl_stream_create);
SAME(dnnl_stream_destroy);
SAME(dnnl_memory_desc_get_size);
SAME(dnnl_primitive_attr_create);
SAME(dnnl_primitive_attr_destroy);
SAME(dnnl_primitive_attr_set_scratchpad_mode);
SAME(dnnl_primitive_desc_destroy);
SAME(dnnl_primitive_desc_query_md);
SAME(dnnl_primitive_create);
SAME(dnnl_primitive_destroy);
SAME(dnnl_primitive_execute);
SAME(dnnl_memory_create);
SAME(dnnl_memory_destroy);
SAME(dnnl_memory_set_data_handle);
#if DNNL_VERSION_MAJOR == 2
SAME(dnnl_memory_desc_init_by_strides);
SAME(dnnl_matmul_desc_init);
SAME(dnnl_primitive_desc_create);
static_assert(sizeof(ours::Matrix2) >= sizeof(dnnl_memory_desc_t) &&
              alignof(ours::Matrix2) >= alignof(dnnl_memory_desc_t));
static_assert(sizeof(ours::Product2) >= sizeof(dnnl_matmul_desc_t) &&
              alignof(ours::Product2) >= alignof(dnnl_matmul_desc_t));
#else
static_assert(DNNL_VERSION_MAJOR == 3);
SAME(dnnl_memory_desc_create_with_strides);
SAME(dnnl_memory_desc_destroy);
SAME(dnnl_matmul_primitive_desc_create);
#endif

#define SAME_VALUE(name) static_assert(static_cast<int>(ours::name) == static_cast<int>(::name))
SAME_VALUE(dnnl_success);
SAME_VALUE(dnnl_out_of_memory);
SAME_VALUE(dnnl_unimplemented);
SAME_VALUE(dnnl_bf16);
SAME_VALUE(dnnl_f32);
SAME_VALUE(dnnl_cpu);
SAME_VALUE(dnnl_scratchpad_mode_user);
SAME_VALUE(dnnl_query_scratchpad_md);
SAME_VALUE(dnnl_stream_default_flags);
static_assert(DNNL_RUNTIME_SEQ == ours::kRuntimeSeq && DNNL_RUNTIME_OMP == ours::kRuntimeOmp);
static_assert(DNNL_ARG_SRC == ours::kArgSource && DNNL_ARG_DST == ours::kArgOut &&
              DNNL_ARG_WEIGHTS == ours::kArgWeights && DNNL_ARG_SCRATCHPAD == ours::kArgScratchpad);
static_assert(std::is_same_v<ours::dnnl_dims_t, ::dnnl_dims_t>);
static_assert(sizeof(ours::dnnl_exec_arg_t) == sizeof(::dnnl_exec_arg_t) &&
              offsetof(ours::dnnl_exec_arg_t, memory) == offsetof(::dnnl_exec_arg_t, memory));
static_assert(sizeof(ours::dnnl_version_t) == sizeof(::dnnl_version_t) &&
              offsetof(ours::dnnl_version_t, major) == offsetof(::dnnl_version_t, major) &&
              offsetof(ours::dnnl_version_t, minor) == offsetof(::dnnl_version_t, minor) &&
              offsetof(ours::dnnl_version_t, patch) == offsetof(::dnnl_version_t, patch) &&
              offsetof(ours::dnnl_version_t, cpu_runtime) == offsetof(::dnnl_version_t, cpu_runtime));

}  // namespace
