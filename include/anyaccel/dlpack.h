// DLPack: passes tensors to other frameworks and takes tensors from them without copying.
//
// The structs have the C layout of DLPack 1.x (https://github.com/dmlc/dlpack, dlpack.h) and may be cast to its types;
// they are declared here under a namespace because older headers lack the versioned one.
//
// Streams: DLPack does not say on which stream a tensor's contents are ready. Work that produces them must be complete,
// or ordered before the consumer's stream, when a tensor changes hands; Accelerator::synchronize() is the simple way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anyaccel/tensor.h"

namespace anyaccel::dlpack {

enum DLDeviceType : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
};

struct DLDevice {
  int32_t device_type;  // DLDeviceType
  int32_t device_id;
};

enum DLDataTypeCode : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12,
};

struct DLDataType {
  uint8_t code;  // DLDataTypeCode
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major and contiguous (before version 1.2)
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

inline constexpr uint64_t kFlagReadOnly = 1ull << 0;  // DLPACK_FLAG_BITMASK_READ_ONLY
inline constexpr uint64_t kFlagIsCopied = 1ull << 1;  // DLPACK_FLAG_BITMASK_IS_COPIED

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  // may be null
  uint64_t flags;
  DLTensor dl_tensor;
};

static_assert(sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4 && sizeof(DLPackVersion) == 8);
static_assert(offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20);
static_assert(offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32);
static_assert(offsetof(DLTensor, byte_offset) == 40 && sizeof(DLTensor) == 48);
static_assert(offsetof(DLManagedTensor, manager_ctx) == 48 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(offsetof(DLManagedTensorVersioned, manager_ctx) == 8);
static_assert(offsetof(DLManagedTensorVersioned, deleter) == 16);
static_assert(offsetof(DLManagedTensorVersioned, flags) == 24);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32 && sizeof(DLManagedTensorVersioned) == 80);

// Return a view of the tensor's memory, which is kept until the consumer calls `deleter`, once, from any thread. Pinned
// host memory is exported as kDLCPU. They throw InvalidArgument for an empty handle, a packed weight, or a device that
// DLPack has no type for. They do not block. The versioned form says version 1.0, and strides are always given.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
DLManagedTensor* to_dlpack_legacy(const Tensor& tensor);

// Options for importing a tensor.
struct ImportOptions {
  // A tensor that its producer marked read-only is rejected unless this is set, since a Tensor is always writable; the
  // caller then promises not to write to it.
  bool allow_read_only = false;
};

// Returns a tensor on memory of another framework. Takes ownership: the deleter is called once, when the last tensor on
// the memory is released. On an exception ownership stays with the caller and nothing has changed. Host memory (kDLCPU,
// kDLCUDAHost, kDLROCMHost) becomes a host tensor. Device memory requires that the active accelerator has that device
// type. Throws InvalidArgument otherwise, and for a major version other than 1, a dtype with lanes or one that DType
// lacks, more than AA_MAX_DIMS dimensions, data that is not aligned to its elements, or a null data pointer where there
// are elements. Does not block.
Tensor from_dlpack(DLManagedTensorVersioned* managed, ImportOptions options = {});
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace anyaccel::dlpack
