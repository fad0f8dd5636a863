// Declares the part of Habana's Synapse (libSynapse.so) that this accelerator uses: facts about its calling convention,
// from its public sources; none of Habana's headers is needed. A device is named by a number in every call, and its
// memory by 64-bit addresses, which this accelerator keeps as pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace anyaccel::hpu {

using SynStatus = int;
using SynDevice = uint32_t;
using SynStream = void*;
using SynEvent = void*;

inline constexpr SynStatus no_device = 8;
inline constexpr SynStatus busy = 22;  // not ready; from an acquisition, like no_device: another process has the module
inline constexpr SynStatus already_initialized = 29;

// synDmaDir, by aa_copy_direction.
inline constexpr int directions[] = {0, 1, 2};

inline constexpr uint32_t event_timed = 1;        // of synEventCreate
inline constexpr size_t description_bytes = 256;  // synStatusGetBriefDescription writes 56 at most
inline constexpr int name_bytes = 256;
inline constexpr uint32_t most_modules = 64;  // of a machine; Habana's servers have 8

// X(name, parameters); all functions return a SynStatus. synDeviceGetModuleIDs takes the capacity in `count`, and sets
// it to the number of modules.
#define ANYACCEL_HPU_FUNCTIONS(X)                                                                            \
  X(synInitialize, ())                                                                                       \
  X(synDeviceGetCount, (uint32_t * count))                                                                   \
  X(synDeviceGetModuleIDs, (uint32_t * modules, uint32_t * count))                                           \
  X(synDeviceAcquireByModuleId, (SynDevice * device, uint32_t module))                                       \
  X(synDeviceRelease, (SynDevice device))                                                                    \
  X(synDeviceGetName, (char* name, int size, SynDevice device))                                              \
  X(synDeviceGetMemoryInfo, (SynDevice device, uint64_t * free, uint64_t * total))                           \
  X(synDeviceMalloc, (SynDevice device, uint64_t size, uint64_t wanted, uint32_t flags, uint64_t * address)) \
  X(synDeviceFree, (SynDevice device, uint64_t address, uint32_t flags))                                     \
  X(synHostMalloc, (SynDevice device, uint64_t size, uint32_t flags, void** pointer))                        \
  X(synHostFree, (SynDevice device, const void* pointer, uint32_t flags))                                    \
  X(synMemCopyAsync, (SynStream stream, uint64_t from, uint64_t size, uint64_t to, int direction))           \
  X(synMemsetD8Async, (uint64_t address, unsigned char value, size_t count, SynStream stream))               \
  X(synStreamCreateGeneric, (SynStream * stream, SynDevice device, uint32_t flags))                          \
  X(synStreamDestroy, (SynStream stream))                                                                    \
  X(synStreamSynchronize, (SynStream stream))                                                                \
  X(synStreamQuery, (SynStream stream))                                                                      \
  X(synStreamWaitEvent, (SynStream stream, SynEvent event, uint32_t flags))                                  \
  X(synEventCreate, (SynEvent * event, SynDevice device, uint32_t flags))                                    \
  X(synEventDestroy, (SynEvent event))                                                                       \
  X(synEventRecord, (SynEvent event, SynStream stream))                                                      \
  X(synEventQuery, (SynEvent event))                                                                         \
  X(synEventSynchronize, (SynEvent event))                                                                   \
  X(synEventElapsedTime, (uint64_t * nanoseconds, SynEvent start, SynEvent end))

#define ANYACCEL_HPU_OPTIONAL_FUNCTIONS(X) \
  X(synStatusGetBriefDescription, (SynStatus status, char* description, size_t size))

// The structs of a graph (synTensorGeometryExt, synLaunchTensorInfoExt, synGEMMParams, ns_LayerNormKernel::Params,
// synDeviceInfoV2, and those named below). Sizes are in Synapse's order: the dimension whose elements are adjacent
// comes first.
inline constexpr size_t most_dimensions = 25;
struct SynGeometry {
  uint64_t sizes[most_dimensions];
  uint32_t dimensions;
};
struct SynLaunchTensor {
  const char* name;
  uint64_t address;
  int type;
  uint64_t sizes[most_dimensions];
  uint64_t id;
};
struct SynGemm {
  bool transpose_a, transpose_b;
};
struct SynNorm {
  bool has_eps;
  float eps;
};
// ns_GatherKernel, ns_Softmax, ns_Reduction, synConcatenateParams: a dimension, counted as in the sizes. For
// ns_IndexCopy it is counted from the other end, as in PyTorch.
struct SynAxis {
  int axis;
};
struct SynRope {  // ns_RoPESt2::ParamsV2
  unsigned offset;
  int mode;  // 0: pairs (i, i + half), 1: pairs (2i, 2i + 1)
};
struct SynTranspose {  // synTransposeParamsNDims: dimension i of the result is dimension permutation[i] of the input
  unsigned dimensions;
  uint32_t permutation[most_dimensions];
};
// A member of four bytes that has the node's type (fint_t).
union SynNumber {
  float f;
  int32_t i;
};
struct SynConstant {  // ns_ConstantKernel
  SynNumber value;
};
struct SynRange {  // ns_RangeKernel
  SynNumber start, limit, delta;
};
struct SynClamp {  // ns_ClampKernel
  SynNumber upper, lower;
};
struct SynDeviceInfo {
  uint64_t sram_base, memory_base;
  uint32_t sram_size;
  uint64_t memory_size, tpc_mask;
  uint8_t has_memory;
  uint32_t device, file;
  int type;  // synDeviceType
  uint8_t index;
  uint64_t reserved[8];  // more than any release writes
};
inline constexpr int data_tensor = 0;     // synTensorType
inline constexpr int geometry_sizes = 1;  // synGeometryType
// synDataType. A boolean is an i8.
inline constexpr int syn_i8 = 1, syn_bf16 = 2, syn_f32 = 4, syn_i32 = 16, syn_f16 = 256;

// Functions for ops, which are not available if one of them is missing.
#define ANYACCEL_HPU_GRAPH_FUNCTIONS(X)                                                                                \
  X(synDeviceGetInfoV2, (SynDevice device, SynDeviceInfo * info))                                                      \
  X(synDeviceSynchronize, (SynDevice device))                                                                          \
  X(synGraphCreate, (void** graph, int device_type))                                                                   \
  X(synGraphDestroy, (void* graph))                                                                                    \
  X(synSectionCreate, (void** section, uint64_t descriptor, void* graph))                                              \
  X(synSectionSetPersistent, (void* section, bool persistent))                                                         \
  X(synSectionDestroy, (void* section))                                                                                \
  X(synTensorHandleCreate, (void** tensor, void* graph, int type, const char* name))                                   \
  X(synTensorSetGeometryExt, (void* tensor, const SynGeometry* geometry, int type))                                    \
  X(synTensorSetDeviceDataType, (void* tensor, int type))                                                              \
  X(synTensorAssignToSection, (void* tensor, void* section, uint64_t offset))                                          \
  X(synTensorDestroy, (void* tensor))                                                                                  \
  X(synNodeCreate, (void* graph, void* const* inputs, void* const* outputs, uint32_t input_count,                      \
                    uint32_t output_count, const void* params, unsigned params_size, const char* guid,                 \
                    const char* name, const char** input_layouts, const char** output_layouts))                        \
  X(synGraphCompile, (void** recipe, void* graph, const char* name, const char* log))                                  \
  X(synRecipeDestroy, (void* recipe))                                                                                  \
  X(synWorkspaceGetSize, (uint64_t * bytes, void* recipe))                                                             \
  X(synTensorRetrieveIds, (void* recipe, const char** names, uint64_t* ids, uint32_t count))                           \
  X(synLaunchExt, (SynStream stream, const SynLaunchTensor* tensors, uint32_t count, uint64_t workspace, void* recipe, \
                   uint32_t flags))

// Functions for recipes in files; if one of them is missing, no recipe is kept.
#define ANYACCEL_HPU_RECIPE_FILE_FUNCTIONS(X)             \
  X(synDriverGetVersion, (char* version, int size))       \
  X(synRecipeSerialize, (void* recipe, const char* file)) \
  X(synRecipeDeSerialize, (void** recipe, const char* file))

struct Api {
#define ANYACCEL_DECLARE(name, parameters) SynStatus(*name) parameters = nullptr;
  ANYACCEL_HPU_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_HPU_OPTIONAL_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_HPU_GRAPH_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_HPU_RECIPE_FILE_FUNCTIONS(ANYACCEL_DECLARE)
#undef ANYACCEL_DECLARE
};

// Returns "status 26 (...)".
std::string status_text(const Api& api, SynStatus status);

}  // namespace anyaccel::hpu
