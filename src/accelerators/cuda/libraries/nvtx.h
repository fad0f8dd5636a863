// Named ranges in NVIDIA's profilers, by NVTX version 3: a profiler names a library in NVTX_INJECTION64_PATH, which is opened
// here and puts its functions into our table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <shared_mutex>
#include <string>
#include <utility>

namespace anyaccel::cuda {

namespace nvtx {

// NVTX's interface between a program and a profiler, as far as it is used.

using Domain = struct OpaqueDomain*;

// nvtxEventAttributes_t of version 3.
struct EventAttributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  union {
    const char* ascii;
    void* registered;
  } message;
};
static_assert(sizeof(EventAttributes) == 48);
inline constexpr uint16_t version = 3;
inline constexpr int32_t message_ascii = 1;

// Places in the tables that a profiler fills.
enum CoreFunction : uint32_t {
  core_mark = 1,
  core_range_push = 8,
  core_range_pop = 11,
  core_name_category = 12,
};
enum Core2Function : uint32_t {
  core2_mark = 1,
  core2_range_push = 4,
  core2_range_pop = 5,
  core2_name_category = 8,
  core2_domain_create = 12,
};
enum ModuleId : int { module_core = 1, module_core2 = 5, module_count = 7 };
// Functions of a module and the empty place before them: core, CUDA, OpenCL, CUDA runtime, core 2, synchronization.
inline constexpr unsigned module_sizes[module_count] = {0, 16, 9, 15, 7, 16, 7};
inline constexpr unsigned most_functions = 16;
enum ExportTable : uint32_t { export_callbacks = 1, export_version = 3 };

using Function = void (*)();
struct CallbacksTable {
  size_t struct_size;
  int (*module_functions)(int module, Function*** table, unsigned* size);  // 1: known
};
struct VersionTable {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  void (*set_injection_version)(uint32_t version);
};
using GetExportTable = const void* (*)(uint32_t id);
// The function that a profiler's library exports, InitializeInjectionNvtx2. Returns 0 if it failed.
using InitializeInjection = int (*)(GetExportTable);

}  // namespace nvtx

// All functions are thread-safe. Without a profiler a call costs a load and a compare.
class NvtxRanges {
 public:
  // Opens the profiler's library, once per process. If it cannot be opened, that is logged and ranges have no effect.
  NvtxRanges();

  // "" is the default domain, and no category.
  void push(const char* message, const char* domain, const char* category) {
    if (attached_) [[unlikely]]
      push_attached(message, domain, category);
  }
  void pop(const char* domain) {
    if (attached_) [[unlikely]]
      pop_attached(domain);
  }
  void mark(const char* message, const char* domain) {
    if (attached_) [[unlikely]]
      mark_attached(message, domain);
  }
  bool attached() const noexcept { return attached_; }

 private:
  struct KnownDomain {
    nvtx::Domain handle = nullptr;
    std::map<std::string, uint32_t, std::less<>> categories;
  };
  void push_attached(const char* message, const char* domain, const char* category);
  void pop_attached(const char* domain);
  void mark_attached(const char* message, const char* domain);
  // The handle of a domain and the number of a category in it (0: ""), made at their first use.
  std::pair<nvtx::Domain, uint32_t> find(const char* domain, const char* category);

  bool attached_ = false;
  std::shared_mutex mutex_;
  std::map<std::string, KnownDomain, std::less<>> domains_;
};

}  // namespace anyaccel::cuda
