// Compiled, never run: what src/accelerators/npu declares of CANN's runtime and of HCCL against CANN's own headers.
#include <acl/acl.h>
#include <acl/error_codes/rt_error_codes.h>
#include <hccl/hccl.h>

#include <type_traits>

#include "accelerators/npu/aclnn.h"
#include "accelerators/npu/collectives.cpp"
#include "accelerators/npu/npu_api.h"

namespace {

using namespace anyaccel;

// An argument or result arrives as it was handed over: both are pointers (to numbers of one size where both say to what), or
// both are whole numbers of one size, or both are the same type.
template <class Ours, class Theirs>
constexpr bool passes() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using To = std::remove_pointer_t<Ours>;
    using There = std::remove_pointer_t<Theirs>;
    constexpr auto is_number = []<class T>(std::type_identity<T>) {
      return std::is_integral_v<T> || std::is_enum_v<T> || std::is_floating_point_v<T>;
    };
    if constexpr (is_number(std::type_identity<To>{}) && is_number(std::type_identity<There>{})) {
      return sizeof(To) == sizeof(There) && std::is_floating_point_v<To> == std::is_floating_point_v<There>;
    }
    return true;
  } else {
    constexpr bool whole =
        (std::is_integral_v<Ours> || std::is_enum_v<Ours>)&&(std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
    return whole && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class Result, class... Ours, class There, class... Theirs>
constexpr bool same_call(Result (*)(Ours...), There (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return passes<Result, There>() && (passes<Ours, Theirs>() && ...);
  }
}

template <class Ours, class Theirs>
constexpr bool fits = same_call(static_cast<Ours>(nullptr), static_cast<Theirs*>(nullptr));

#define ANYACCEL_COMPARE(name, result, parameters) \
  static_assert(fits<decltype(npu::Api::name), decltype(::name)>, #name);
ANYACCEL_NPU_FUNCTIONS(ANYACCEL_COMPARE)
ANYACCEL_NPU_OPTIONAL_FUNCTIONS(ANYACCEL_COMPARE)
ANYACCEL_NPU_CAPTURE_FUNCTIONS(ANYACCEL_COMPARE)
#undef ANYACCEL_COMPARE

static_assert(npu::repeated_init == ACL_ERROR_REPEAT_INITIALIZE && npu::stub_mode == ACL_ERROR_COMPILING_STUB_MODE);
static_assert(npu::no_device == ACL_ERROR_RT_NO_DEVICE);
static_assert(npu::memcpy_kinds[AA_COPY_HOST_TO_DEVICE] == ACL_MEMCPY_HOST_TO_DEVICE);
static_assert(npu::memcpy_kinds[AA_COPY_DEVICE_TO_HOST] == ACL_MEMCPY_DEVICE_TO_HOST);
static_assert(npu::memcpy_kinds[AA_COPY_DEVICE_TO_DEVICE] == ACL_MEMCPY_DEVICE_TO_DEVICE);
static_assert(npu::malloc_huge_first == ACL_MEM_MALLOC_HUGE_FIRST);
static_assert(npu::memory_ddr == ACL_DDR_MEM && npu::memory_hbm == ACL_HBM_MEM);
static_assert(npu::stream_fast_launch == ACL_STREAM_FAST_LAUNCH && npu::stream_fast_sync == ACL_STREAM_FAST_SYNC);
static_assert(npu::event_sync == ACL_EVENT_SYNC && npu::event_progress == ACL_EVENT_CAPTURE_STREAM_PROGRESS);
static_assert(npu::event_time_line == ACL_EVENT_TIME_LINE);
static_assert(npu::stream_complete == ACL_STREAM_STATUS_COMPLETE);
static_assert(npu::event_complete == ACL_EVENT_RECORDED_STATUS_COMPLETE);
static_assert(npu::device_ai_cores == ACL_DEV_ATTR_AICORE_CORE_NUM);
static_assert(npu::device_total_memory == ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE);
static_assert(npu::cann_bf16 == ACL_CANN_ATTR_BF16);

static_assert(npu::type_f32 == ACL_FLOAT && npu::type_f16 == ACL_FLOAT16 && npu::type_bf16 == ACL_BF16);
static_assert(npu::type_i32 == ACL_INT32 && npu::type_i64 == ACL_INT64 && npu::type_bool == ACL_BOOL);
static_assert(npu::format_nd == ACL_FORMAT_ND && npu::format_fractal_nz == ACL_FORMAT_FRACTAL_NZ);

// HCCL, as collective_library calls it.
constexpr const auto& hccl = npu::hccl_table;
static_assert(hccl.id_bytes == sizeof(HcclRootInfo) && hccl.success == HCCL_SUCCESS);
static_assert(hccl.types[AA_DTYPE_U8] == HCCL_DATA_TYPE_UINT8 && hccl.types[AA_DTYPE_I8] == HCCL_DATA_TYPE_INT8);
static_assert(hccl.types[AA_DTYPE_I16] == HCCL_DATA_TYPE_INT16 && hccl.types[AA_DTYPE_I32] == HCCL_DATA_TYPE_INT32);
static_assert(hccl.types[AA_DTYPE_I64] == HCCL_DATA_TYPE_INT64 && hccl.types[AA_DTYPE_F16] == HCCL_DATA_TYPE_FP16);
static_assert(hccl.types[AA_DTYPE_BF16] == HCCL_DATA_TYPE_BFP16 && hccl.types[AA_DTYPE_F32] == HCCL_DATA_TYPE_FP32);
static_assert(hccl.types[AA_DTYPE_F64] == HCCL_DATA_TYPE_FP64 && hccl.carried == HCCL_DATA_TYPE_UINT8);
static_assert(hccl.operations[AA_REDUCE_SUM] == HCCL_REDUCE_SUM &&
              hccl.operations[AA_REDUCE_PRODUCT] == HCCL_REDUCE_PROD);
static_assert(hccl.operations[AA_REDUCE_MIN] == HCCL_REDUCE_MIN && hccl.operations[AA_REDUCE_MAX] == HCCL_REDUCE_MAX);
static_assert(npu::results[0].result == HCCL_E_PARA && npu::results[1].result == HCCL_E_NOT_SUPPORT);
static_assert(npu::results[2].result == HCCL_E_TIMEOUT && npu::results[3].result == HCCL_E_AGAIN);

static_assert(fits<int (*)(void* id), decltype(HcclGetRootInfo)>);
static_assert(fits<int (*)(uint32_t size, const void* id, uint32_t rank, void** comm), decltype(HcclCommInitRootInfo)>);
static_assert(fits<int (*)(void* comm), decltype(HcclCommDestroy)>);
static_assert(fits<const char* (*)(int result), decltype(HcclGetErrorString)>);
static_assert(fits<int (*)(void* comm, int* error), decltype(HcclGetCommAsyncError)>);
using Reduction = int (*)(const void* send, void* recv, size_t count, int type, int operation, void* comm,
                          void* stream);
static_assert(fits<Reduction, decltype(HcclAllReduce)> && fits<Reduction, decltype(HcclReduceScatter)>);
static_assert(fits<int (*)(const void* send, void* recv, size_t count, int type, int operation, int root, void* comm,
                           void* stream),
                   decltype(HcclReduce)>);
static_assert(
    fits<int (*)(void* buffer, size_t count, int type, int root, void* comm, void* stream), decltype(HcclBroadcast)>);
static_assert(fits<int (*)(const void* send, void* recv, size_t count, int type, void* comm, void* stream),
                   decltype(HcclAllGather)>);
static_assert(
    fits<int (*)(const void* data, size_t count, int type, int peer, void* comm, void* stream), decltype(HcclSend)>);
static_assert(
    fits<int (*)(void* data, size_t count, int type, int peer, void* comm, void* stream), decltype(HcclRecv)>);

}  // namespace
