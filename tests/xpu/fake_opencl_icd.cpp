// A small OpenCL driver for tests of what PoCL cannot show: machines without devices, devices that cannot be used, a GPU's
// facts, and failures of work that was enqueued. Commands run at once, on the calling thread; kernels do nothing.
//
// FAKE_OPENCL holds words that change it: no_platform, old_platform, missing_function, no_device, two, cpu, no_svm,
// no_compiler, unavailable, little_local_memory, subgroups, f16, no_f64, small_memory.
#include <cstdlib>
#include <cstring>
#include <string>

#include "accelerators/xpu/opencl/opencl_api.h"

using namespace anyaccel::xpu::opencl;

namespace {

constexpr size_t table_size = 160;
void* table[table_size];

// Every OpenCL object begins with the dispatch table.
struct Object {
  void** dispatch = table;
  int references = 1;
  cl_int status = 0;  // of an event
};

Object platform;
Object devices[2];
// The status with which every further command ends.
cl_int failure = 0;
cl_int marker_refusal = 0;
uint64_t clock_ns = 1000;

bool has(const char* word) {
  const char* words = std::getenv("FAKE_OPENCL");
  return (" " + std::string(words ? words : "") + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

template <class Handle>
Handle as(Object* object) {
  return reinterpret_cast<Handle>(object);
}
template <class Handle>
Object* object_of(Handle handle) {
  return reinterpret_cast<Object*>(handle);
}
template <class Handle>
cl_int release(Handle handle) {
  if (--object_of(handle)->references == 0) delete object_of(handle);
  return CL_SUCCESS;
}

cl_int give(const void* data, size_t data_size, size_t size, void* value, size_t* out_size) {
  if (out_size) *out_size = data_size;
  if (value && size < data_size) return CL_INVALID_VALUE;
  if (value) std::memcpy(value, data, data_size);
  return CL_SUCCESS;
}
cl_int give_text(const std::string& text, size_t size, void* value, size_t* out_size) {
  return give(text.c_str(), text.size() + 1, size, value, out_size);
}
template <class Number>
cl_int give_number(Number number, size_t size, void* value, size_t* out_size) {
  return give(&number, sizeof(number), size, value, out_size);
}

cl_int platform_info(cl_platform_id, cl_uint what, size_t size, void* value, size_t* out) {
  if (what == CL_PLATFORM_VERSION) {
    return give_text(has("old_platform") ? "OpenCL 1.2 fake" : "OpenCL 3.0 fake", size, value, out);
  }
  return give_text("Fake Platform", size, value, out);
}

cl_int device_ids(cl_platform_id, cl_ulong type, cl_uint count, cl_device_id* ids, cl_uint* out_count) {
  const cl_ulong own = has("cpu") ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU;
  if (has("no_device") || type != own) return CL_DEVICE_NOT_FOUND;
  const cl_uint total = has("two") ? 2 : 1;
  if (out_count) *out_count = total;
  for (cl_uint i = 0; i < count && i < total; ++i) ids[i] = as<cl_device_id>(&devices[i]);
  return CL_SUCCESS;
}

cl_int device_info(cl_device_id, cl_uint what, size_t size, void* value, size_t* out) {
  const size_t widths[] = {8, 16, 32, 64};
  switch (what) {
    case CL_DEVICE_NAME: return give_text("Fake Device", size, value, out);
    case CL_DEVICE_VENDOR: return give_text("Fake Vendor", size, value, out);
    case CL_DEVICE_VERSION: return give_text("OpenCL 3.0 fake", size, value, out);
    case CL_DRIVER_VERSION: return give_text("7.1", size, value, out);
    case CL_DEVICE_EXTENSIONS:
      return give_text(std::string("cl_khr_icd") + (has("no_f64") ? "" : " cl_khr_fp64") +
                           (has("f16") ? " cl_khr_fp16" : "") +
                           (has("subgroups") ? " cl_khr_subgroups cl_intel_required_subgroup_size" : ""),
                       size, value, out);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      return give_number<cl_ulong>(has("small_memory") ? 1 << 20 : 1u << 30, size, value, out);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      return give_number<cl_ulong>(has("small_memory") ? 1 << 19 : 1u << 28, size, value, out);
    case CL_DEVICE_LOCAL_MEM_SIZE:
      return give_number<cl_ulong>(has("little_local_memory") ? 1024 : 65536, size, value, out);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return give_number<cl_uint>(16, size, value, out);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return give_number<size_t>(512, size, value, out);
    case CL_DEVICE_AVAILABLE: return give_number<cl_uint>(!has("unavailable"), size, value, out);
    case CL_DEVICE_COMPILER_AVAILABLE: return give_number<cl_uint>(!has("no_compiler"), size, value, out);
    case CL_DEVICE_SVM_CAPABILITIES: return give_number<cl_ulong>(has("no_svm") ? 0 : 1, size, value, out);
    case CL_DEVICE_SUB_GROUP_SIZES_INTEL: return give(widths, sizeof(widths), size, value, out);
    default: return CL_INVALID_VALUE;
  }
}

cl_int finish_command(cl_event* out) {
  clock_ns += 1000;
  if (out) {
    auto* event = new Object;
    event->status = failure;
    *out = as<cl_event>(event);
  }
  return CL_SUCCESS;
}

cl_int wait_for_events(cl_uint count, const cl_event* events) {
  for (cl_uint i = 0; i < count; ++i) {
    if (object_of(events[i])->status < 0) return -14;  // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
  }
  return CL_SUCCESS;
}

cl_int memcpy_command(cl_command_queue, cl_uint, void* destination, const void* source, size_t size, cl_uint,
                      const cl_event*, cl_event* out) {
  std::memcpy(destination, source, size);
  return finish_command(out);
}

constexpr char binary[] = "fake binary";

cl_int program_info(cl_program, cl_uint what, size_t size, void* value, size_t* out) {
  if (what == CL_PROGRAM_KERNEL_NAMES) return give_text("nothing", size, value, out);
  if (what == CL_PROGRAM_BINARY_SIZES) return give_number<size_t>(sizeof(binary), size, value, out);
  std::memcpy(*static_cast<unsigned char**>(value), binary, sizeof(binary));
  return CL_SUCCESS;
}

void fill_table() {
  const auto set = [](size_t place, auto* function) { table[place] = reinterpret_cast<void*>(function); };
  set(1, platform_info);
  set(2, device_ids);
  set(3, device_info);
  set(
      4, +[](const intptr_t*, cl_uint, const cl_device_id*, void (*)(const char*, const void*, size_t, void*), void*,
             cl_int* error) {
        *error = CL_SUCCESS;
        return as<cl_context>(new Object);
      });
  set(7, release<cl_context>);
  set(11, release<cl_command_queue>);
  set(
      26, +[](cl_context, cl_uint, const char**, const size_t*, cl_int* error) {
        *error = CL_SUCCESS;
        return as<cl_program>(new Object);
      });
  set(
      27, +[](cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char** code, cl_int* accepted,
              cl_int* error) {
        *error = *accepted = std::memcmp(*code, binary, sizeof(binary)) == 0 ? CL_SUCCESS : CL_INVALID_BINARY;
        return *error ? nullptr : as<cl_program>(new Object);
      });
  set(29, release<cl_program>);
  set(
      30, +[](cl_program, cl_uint, const cl_device_id*, const char*, void (*)(cl_program, void*), void*) {
        return CL_SUCCESS;
      });
  set(32, program_info);
  set(
      33, +[](cl_program, cl_device_id, cl_uint, size_t size, void* value, size_t* out) {
        return give_text("", size, value, out);
      });
  set(
      34, +[](cl_program, const char*, cl_int* error) {
        *error = CL_SUCCESS;
        return as<cl_kernel>(new Object);
      });
  set(37, release<cl_kernel>);
  set(
      38, +[](cl_kernel, cl_uint, size_t, const void*) { return CL_SUCCESS; });
  set(
      39, +[](cl_kernel, cl_uint, size_t size, void* value, size_t* out) {
        return give_number<cl_uint>(2, size, value, out);
      });
  set(
      40, +[](cl_kernel, cl_device_id, cl_uint what, size_t size, void* value, size_t* out) {
        return what == CL_KERNEL_LOCAL_MEM_SIZE ? give_number<cl_ulong>(0, size, value, out)
                                                : give_number<size_t>(512, size, value, out);
      });
  set(41, wait_for_events);
  set(
      42, +[](cl_event event, cl_uint, size_t size, void* value, size_t* out) {
        return give_number<cl_int>(object_of(event)->status, size, value, out);
      });
  set(
      43, +[](cl_event event) {
        ++object_of(event)->references;
        return CL_SUCCESS;
      });
  set(44, release<cl_event>);
  set(
      45, +[](cl_event, cl_uint, size_t size, void* value, size_t* out) {
        return give_number<cl_ulong>(clock_ns, size, value, out);
      });
  set(
      46, +[](cl_command_queue) { return CL_SUCCESS; });
  set(
      59, +[](cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,
              const cl_event*, cl_event* out) { return out ? finish_command(out) : CL_SUCCESS; });
  set(
      84, +[](cl_context, cl_int* error) {
        *error = CL_SUCCESS;
        return as<cl_event>(new Object);
      });
  set(
      85, +[](cl_event, cl_int) { return CL_SUCCESS; });
  // The first argument is a pointer, the second a value.
  set(
      101, +[](cl_kernel, cl_uint index, cl_uint, size_t size, void* value, size_t* out) {
        return give_number<cl_uint>(index == 0 ? CL_KERNEL_ARG_ADDRESS_GLOBAL : 0x119e, size, value, out);
      });
  const auto mark = +[](cl_command_queue, cl_uint, const cl_event*, cl_event* out) { return finish_command(out); };
  set(
      105, +[](cl_command_queue, cl_uint, const cl_event*, cl_event* out) {
        return marker_refusal ? marker_refusal : finish_command(out);
      });
  set(106, mark);
  set(
      123, +[](cl_context, cl_device_id, const cl_ulong*, cl_int* error) {
        *error = CL_SUCCESS;
        return as<cl_command_queue>(new Object);
      });
  set(
      126, +[](cl_context, cl_ulong, size_t size, cl_uint alignment) {
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
      });
  set(
      127, +[](cl_context, void* pointer) { std::free(pointer); });
  set(129, memcpy_command);
  set(
      130, +[](cl_command_queue, void* destination, const void* pattern, size_t pattern_size, size_t size, cl_uint,
               const cl_event*, cl_event* out) {
        for (size_t i = 0; i < size; i += pattern_size)
          std::memcpy(static_cast<char*>(destination) + i, pattern, pattern_size);
        return finish_command(out);
      });
  if (!has("missing_function"))
    set(
        134, +[](cl_kernel, cl_uint, const void*) { return CL_SUCCESS; });
}

cl_int get_platforms(cl_uint count, cl_platform_id* ids, cl_uint* out_count) {
  if (has("no_platform")) return -1001;
  fill_table();
  if (out_count) *out_count = 1;
  if (count) ids[0] = as<cl_platform_id>(&platform);
  return CL_SUCCESS;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* clGetExtensionFunctionAddress(const char* name) {
  return std::strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? reinterpret_cast<void*>(get_platforms) : nullptr;
}

// From now on every command ends with `status`; 0: none fails.
extern "C" __attribute__((visibility("default"))) void fake_opencl_fail(cl_int status) { failure = status; }
// From now on clEnqueueMarkerWithWaitList returns `error`; 0: it works.
extern "C" __attribute__((visibility("default"))) void fake_opencl_refuse_markers(cl_int error) {
  marker_refusal = error;
}
