// The part of OpenCL that the runtime uses: types, constants and functions, declared here because no vendor header is
// needed to build. Names and values are those of the OpenCL 3.0 specification.
//
// Functions are not looked up by name: every OpenCL object begins with a pointer to its vendor's dispatch table (extension
// cl_khr_icd), whose order is fixed. The first number of each entry below is its place in that table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::xpu::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_platform_id = struct ClPlatform*;
using cl_device_id = struct ClDevice*;
using cl_context = struct ClContext*;
using cl_command_queue = struct ClCommandQueue*;
using cl_program = struct ClProgram*;
using cl_kernel = struct ClKernel*;
using cl_event = struct ClEvent*;

inline constexpr cl_int CL_SUCCESS = 0;
inline constexpr cl_int CL_DEVICE_NOT_FOUND = -1;
inline constexpr cl_int CL_DEVICE_NOT_AVAILABLE = -2;
inline constexpr cl_int CL_COMPILER_NOT_AVAILABLE = -3;
inline constexpr cl_int CL_MEM_OBJECT_ALLOCATION_FAILURE = -4;
inline constexpr cl_int CL_OUT_OF_RESOURCES = -5;
inline constexpr cl_int CL_OUT_OF_HOST_MEMORY = -6;
inline constexpr cl_int CL_BUILD_PROGRAM_FAILURE = -11;
inline constexpr cl_int CL_INVALID_VALUE = -30;
inline constexpr cl_int CL_INVALID_BINARY = -42;
inline constexpr cl_int CL_INVALID_KERNEL_NAME = -46;

inline constexpr cl_int CL_COMPLETE = 0;  // execution status of an event; negative: it failed

inline constexpr cl_uint CL_PLATFORM_VERSION = 0x0901;
inline constexpr cl_uint CL_PLATFORM_NAME = 0x0902;

inline constexpr cl_ulong CL_DEVICE_TYPE_CPU = 1 << 1;
inline constexpr cl_ulong CL_DEVICE_TYPE_GPU = 1 << 2;

inline constexpr cl_uint CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002;
inline constexpr cl_uint CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004;
inline constexpr cl_uint CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010;
inline constexpr cl_uint CL_DEVICE_SINGLE_FP_CONFIG = 0x101b;
inline constexpr cl_uint CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f;
inline constexpr cl_uint CL_DEVICE_LOCAL_MEM_SIZE = 0x1023;
inline constexpr cl_uint CL_DEVICE_AVAILABLE = 0x1027;
inline constexpr cl_uint CL_DEVICE_COMPILER_AVAILABLE = 0x1028;
inline constexpr cl_uint CL_DEVICE_NAME = 0x102b;
inline constexpr cl_uint CL_DEVICE_VENDOR = 0x102c;
inline constexpr cl_uint CL_DRIVER_VERSION = 0x102d;
inline constexpr cl_uint CL_DEVICE_VERSION = 0x102f;
inline constexpr cl_uint CL_DEVICE_EXTENSIONS = 0x1030;
inline constexpr cl_uint CL_DEVICE_SVM_CAPABILITIES = 0x1053;
inline constexpr cl_uint CL_DEVICE_SUB_GROUP_SIZES_INTEL = 0x4108;

inline constexpr cl_ulong CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7;
inline constexpr cl_ulong CL_DEVICE_SVM_COARSE_GRAIN_BUFFER = 1 << 0;
inline constexpr cl_ulong CL_DEVICE_SVM_FINE_GRAIN_BUFFER = 1 << 1;

inline constexpr cl_uint CL_QUEUE_PROPERTIES = 0x1093;
inline constexpr cl_ulong CL_QUEUE_PROFILING_ENABLE = 1 << 1;

inline constexpr cl_ulong CL_MEM_READ_WRITE = 1 << 0;
inline constexpr cl_ulong CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10;

inline constexpr cl_uint CL_PROGRAM_BINARY_SIZES = 0x1165;
inline constexpr cl_uint CL_PROGRAM_BINARIES = 0x1166;
inline constexpr cl_uint CL_PROGRAM_KERNEL_NAMES = 0x1168;
inline constexpr cl_uint CL_PROGRAM_BUILD_LOG = 0x1183;

inline constexpr cl_uint CL_KERNEL_NUM_ARGS = 0x1191;
inline constexpr cl_uint CL_KERNEL_ARG_ADDRESS_QUALIFIER = 0x1196;
inline constexpr cl_uint CL_KERNEL_ARG_ADDRESS_GLOBAL = 0x119b;
inline constexpr cl_uint CL_KERNEL_ARG_ADDRESS_CONSTANT = 0x119d;
inline constexpr cl_uint CL_KERNEL_WORK_GROUP_SIZE = 0x11b0;
inline constexpr cl_uint CL_KERNEL_LOCAL_MEM_SIZE = 0x11b2;

inline constexpr cl_uint CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11d3;
inline constexpr cl_uint CL_PROFILING_COMMAND_END = 0x1283;

// F(place in the dispatch table, result, name without "cl", parameters)
#define ANYACCEL_OPENCL_FUNCTIONS(F)                                                                               \
  F(1, cl_int, GetPlatformInfo, (cl_platform_id, cl_uint, size_t, void*, size_t*))                                 \
  F(2, cl_int, GetDeviceIDs, (cl_platform_id, cl_ulong, cl_uint, cl_device_id*, cl_uint*))                         \
  F(3, cl_int, GetDeviceInfo, (cl_device_id, cl_uint, size_t, void*, size_t*))                                     \
  F(4, cl_context, CreateContext,                                                                                  \
    (const intptr_t*, cl_uint, const cl_device_id*, void (*)(const char*, const void*, size_t, void*), void*,      \
     cl_int*))                                                                                                     \
  F(7, cl_int, ReleaseContext, (cl_context))                                                                       \
  F(11, cl_int, ReleaseCommandQueue, (cl_command_queue))                                                           \
  F(26, cl_program, CreateProgramWithSource, (cl_context, cl_uint, const char**, const size_t*, cl_int*))          \
  F(27, cl_program, CreateProgramWithBinary,                                                                       \
    (cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*, cl_int*))            \
  F(29, cl_int, ReleaseProgram, (cl_program))                                                                      \
  F(30, cl_int, BuildProgram,                                                                                      \
    (cl_program, cl_uint, const cl_device_id*, const char*, void (*)(cl_program, void*), void*))                   \
  F(32, cl_int, GetProgramInfo, (cl_program, cl_uint, size_t, void*, size_t*))                                     \
  F(33, cl_int, GetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))                  \
  F(34, cl_kernel, CreateKernel, (cl_program, const char*, cl_int*))                                               \
  F(37, cl_int, ReleaseKernel, (cl_kernel))                                                                        \
  F(38, cl_int, SetKernelArg, (cl_kernel, cl_uint, size_t, const void*))                                           \
  F(39, cl_int, GetKernelInfo, (cl_kernel, cl_uint, size_t, void*, size_t*))                                       \
  F(40, cl_int, GetKernelWorkGroupInfo, (cl_kernel, cl_device_id, cl_uint, size_t, void*, size_t*))                \
  F(41, cl_int, WaitForEvents, (cl_uint, const cl_event*))                                                         \
  F(42, cl_int, GetEventInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                         \
  F(43, cl_int, RetainEvent, (cl_event))                                                                           \
  F(44, cl_int, ReleaseEvent, (cl_event))                                                                          \
  F(45, cl_int, GetEventProfilingInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                \
  F(46, cl_int, Flush, (cl_command_queue))                                                                         \
  F(59, cl_int, EnqueueNDRangeKernel,                                                                              \
    (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint, const cl_event*,  \
     cl_event*))                                                                                                   \
  F(84, cl_event, CreateUserEvent, (cl_context, cl_int*))                                                          \
  F(85, cl_int, SetUserEventStatus, (cl_event, cl_int))                                                            \
  F(101, cl_int, GetKernelArgInfo, (cl_kernel, cl_uint, cl_uint, size_t, void*, size_t*))                          \
  F(105, cl_int, EnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))               \
  F(106, cl_int, EnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))              \
  F(123, cl_command_queue, CreateCommandQueueWithProperties, (cl_context, cl_device_id, const cl_ulong*, cl_int*)) \
  F(126, void*, SVMAlloc, (cl_context, cl_ulong, size_t, cl_uint))                                                 \
  F(127, void, SVMFree, (cl_context, void*))                                                                       \
  F(129, cl_int, EnqueueSVMMemcpy,                                                                                 \
    (cl_command_queue, cl_uint, void*, const void*, size_t, cl_uint, const cl_event*, cl_event*))                  \
  F(130, cl_int, EnqueueSVMMemFill,                                                                                \
    (cl_command_queue, void*, const void*, size_t, size_t, cl_uint, const cl_event*, cl_event*))                   \
  F(134, cl_int, SetKernelArgSVMPointer, (cl_kernel, cl_uint, const void*))

// One vendor's functions.
struct Api {
#define ANYACCEL_OPENCL_MEMBER(place, result, name, parameters) result(*name) parameters;
  ANYACCEL_OPENCL_FUNCTIONS(ANYACCEL_OPENCL_MEMBER)
#undef ANYACCEL_OPENCL_MEMBER
};

// The two functions that a vendor's library exports under a name, before there is an object.
using GetExtensionFunctionAddress = void* (*)(const char* name);
using IcdGetPlatformIds = cl_int (*)(cl_uint count, cl_platform_id* platforms, cl_uint* out_count);

}  // namespace anyaccel::xpu::opencl
