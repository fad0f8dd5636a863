// The CPU driver's table: see driver.h.
#include "accelerators/cpu/cpu_driver.h"

#include <chrono>
#include <cstring>
#include <string>

#include "accelerators/cpu/driver_objects.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/matmul_control.h"
#include "accelerators/cpu/memory.h"
#include "accelerators/cpu/topology.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/error.h"
#include "base/simd/cpu_features.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::cpu {
namespace {

Instance the_instance;

void set_text(char* field, size_t size, const std::string& text) {
  std::strncpy(field, text.c_str(), size - 1);
  field[size - 1] = '\0';
}

// The NUMA node that device `index` stands for; with LOCAL_SIZE, ranks are dealt over the nodes in order.
const NumaNode& node_of(int index) {
  const auto& nodes = numa_nodes();
  const auto count = static_cast<size_t>(device_count());
  return nodes[static_cast<size_t>(index) * nodes.size() / std::max(count, nodes.size())];
}

void refuse_while_capturing(const StreamObject& stream) {
  if (stream.capture) {
    throw InvalidArgument("the stream is capturing a graph and cannot be waited for", AA_FAILED_PRECONDITION);
  }
}

// ---- life, devices -------------------------------------------------------------------------------------------------

aa_status* probe(aa_probe* out) {
  aa_probe found{};
  found.struct_size = out->struct_size;
  found.state = AA_PROBE_USABLE;
  found.device_count = 1;  // how many NUMA nodes there are is read when a device is first used
  set_text(found.reason, sizeof(found.reason), "every machine has one");
  std::memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return nullptr;
}

aa_status* initialize(const aa_initialize_params*, aa_instance** out) {
  return guarded([&] {
    isa();          // an impossible ANYACCEL_CPU_ISA is reported here,
    matmul_mode();  // and an unknown ANYACCEL_CPU_MATMUL,
    overcommits();  // and ANYACCEL_CPU_OVERCOMMIT
    *out = reinterpret_cast<aa_instance*>(&the_instance);
  });
}

aa_status* shutdown(aa_instance*) { return nullptr; }

aa_status* query_extension(aa_instance*, const char* name, uint32_t min_version, const void** out) {
  return guarded([&] {
    const std::string_view asked = name;
    if (asked == AA_OPS_EXTENSION && min_version <= AA_OPS_VERSION) {
      *out = ops_table();
    } else if (asked == AA_GRAPH_EXTENSION && min_version <= AA_GRAPH_VERSION) {
      *out = graph_table();
    } else if (asked == AA_HOST_MEMORY_EXTENSION && min_version <= AA_HOST_MEMORY_VERSION) {
      *out = host_memory_extension();
    } else if (asked == AA_CEILINGS_EXTENSION && min_version <= AA_CEILINGS_VERSION) {
      *out = ceilings_table();
    } else if (asked == AA_CPU_MATMUL_EXTENSION && min_version <= AA_CPU_MATMUL_VERSION) {
      *out = matmul_control_table();
    } else if (asked == AA_HOST_CODE_EXTENSION && min_version <= AA_HOST_CODE_VERSION) {
      *out = host_code_table();
    } else {
      throw NotImplementedError("the CPU driver has no extension \"" + std::string(asked) + "\" of version " +
                                std::to_string(min_version));
    }
  });
}

aa_status* get_device_count(aa_instance*, int32_t* out) {
  return guarded([&] { *out = device_count(); });
}

aa_status* device_props(aa_instance*, int32_t index, aa_device_props* out) {
  return guarded([&] {
    if (index < 0 || index >= device_count()) {
      throw InvalidArgument("there is no CPU device " + std::to_string(index), AA_OUT_OF_RANGE);
    }
    const uint32_t size = out->struct_size;
    aa_device_props props{};
    props.struct_size = size;
    props.numa_node = node_of(index).os_index;
    set_text(props.name, sizeof(props.name), processor_name());
    set_text(props.vendor, sizeof(props.vendor), "CPU");
    set_text(props.arch, sizeof(props.arch), std::string(isa_name(isa())));
    props.caps = AA_CAP_SYNCHRONOUS | AA_CAP_HOST_TIMERS | AA_CAP_RESOLVES_DEPENDENCIES | AA_CAP_MEMORY_BACKPRESSURE |
                 AA_CAP_HOST_COHERENT | AA_CAP_EVENT_TIMING | AA_CAP_PINNED_HOST | AA_CAP_HOST_CALL | AA_CAP_IS_HOST;
    int64_t free_bytes = 0;
    memory_info(free_bytes, props.total_memory);
    props.alignment = memory_alignment;
    props.compute_units = WorkerPool::instance().size();
    uint64_t all = 0;
    for (int t = AA_DTYPE_BOOL; t <= AA_DTYPE_F8_E5M2; ++t) all |= uint64_t{1} << t;
    props.dtypes_storable = all;
    props.dtypes_computable = uint64_t{1} << AA_DTYPE_I32 | uint64_t{1} << AA_DTYPE_I64 | uint64_t{1} << AA_DTYPE_F32 |
                              uint64_t{1} << AA_DTYPE_F64;
    if (is_bf16_supported()) props.dtypes_computable |= uint64_t{1} << AA_DTYPE_BF16;
    if (is_fp16_supported()) props.dtypes_computable |= uint64_t{1} << AA_DTYPE_F16;
    if (cpu_features().fast_bf16) props.dtypes_matrix = uint64_t{1} << AA_DTYPE_BF16;
    props.dlpack_device_type = 1;
    std::memcpy(out, &props, std::min<size_t>(size, sizeof(props)));
  });
}

aa_status* device_open(aa_instance*, int32_t index, aa_device** out) {
  return guarded([&] {
    if (index < 0 || index >= device_count()) {
      throw InvalidArgument("there is no CPU device " + std::to_string(index), AA_OUT_OF_RANGE);
    }
    auto* device = new DeviceObject;
    device->index = index;
    *out = reinterpret_cast<aa_device*>(device);
  });
}

aa_status* device_close(aa_device* device) {
  delete &object(device);
  return nullptr;
}

aa_status* device_synchronize(aa_device*) { return nullptr; }

aa_status* device_memory_info(aa_device*, int64_t* out_free, int64_t* out_total) {
  return guarded([&] { memory_info(*out_free, *out_total); });
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

aa_status* mem_alloc(aa_device* device, int32_t kind, size_t size, void** out) {
  return guarded([&] {
    if (kind != AA_MEMORY_DEVICE && kind != AA_MEMORY_PINNED) {
      throw NotImplementedError("the CPU has no memory of kind " + std::to_string(kind));
    }
    if (size == 0) throw InvalidArgument("an allocation of 0 bytes was asked for");
    *out = allocate(size, kind, device_count() > 1 ? node_of(object(device).index).os_index : -1);
  });
}

aa_status* mem_free(aa_device*, int32_t kind, void* pointer, size_t size) {
  release(pointer, size, kind);
  return nullptr;
}

aa_status* mem_query(aa_instance*, const void* pointer, aa_memory_info* out) {
  aa_memory_info info{};
  info.struct_size = out->struct_size;
  if (!query(pointer, info)) return make_status(AA_NOT_FOUND, "the pointer is not memory of the CPU driver");
  std::memcpy(out, &info, std::min<size_t>(info.struct_size, sizeof(info)));
  return nullptr;
}

aa_status* copy_async(aa_stream* stream, void* destination, const void* source, size_t size, int32_t direction) {
  return guarded([&] {
    if (direction < AA_COPY_HOST_TO_DEVICE || direction > AA_COPY_DEVICE_TO_DEVICE) {
      throw InvalidArgument("there is no copy direction " + std::to_string(direction));
    }
    StreamObject& s = object(stream);
    if (!s.capture) [[likely]] {
      copy_bytes(destination, source, size);
      return;
    }
    Node node{};
    node.kind = Node::Kind::Copy;
    node.destination = destination;
    node.source = source;
    node.size = size;
    submit(s, std::move(node));
  });
}

aa_status* fill_async(aa_stream* stream, void* destination, const void* pattern, size_t pattern_size, size_t size) {
  return guarded([&] {
    if (pattern_size != 1 && pattern_size != 2 && pattern_size != 4 && pattern_size != 8) {
      throw InvalidArgument("a fill pattern has 1, 2, 4 or 8 bytes, not " + std::to_string(pattern_size));
    }
    if (size % pattern_size != 0) {
      throw InvalidArgument("a fill of " + std::to_string(size) + " bytes is not a multiple of its pattern of " +
                            std::to_string(pattern_size));
    }
    Node node{};
    node.kind = Node::Kind::Fill;
    node.destination = destination;
    node.size = size;
    std::memcpy(node.pattern, pattern, pattern_size);
    node.pattern_size = pattern_size;
    submit(object(stream), std::move(node));
  });
}

// ---- streams and events
// ------------------------------------------------------------------------------------------------

aa_status* stream_create(aa_device* device, int32_t, uint32_t, aa_stream** out) {
  return guarded([&] {
    auto* stream = new StreamObject;
    stream->device = &object(device);
    *out = reinterpret_cast<aa_stream*>(stream);
  });
}

aa_status* stream_destroy(aa_stream* stream) {
  delete &object(stream);
  return nullptr;
}

aa_status* stream_query(aa_stream* stream, int32_t* out_done) {
  return guarded([&] {
    refuse_while_capturing(object(stream));
    *out_done = 1;
  });
}

aa_status* stream_synchronize(aa_stream* stream) {
  return guarded([&] { refuse_while_capturing(object(stream)); });
}

// Whatever was recorded before has run already; inside a capture the order of recording is the order of replay.
aa_status* stream_wait_event(aa_stream*, aa_event*) { return nullptr; }

aa_status* stream_native(aa_stream*, void** out) {
  *out = nullptr;
  return nullptr;
}

aa_status* stream_host_call(aa_stream* stream, void (*function)(void*), void* user) {
  return guarded([&] {
    Node node{};
    node.kind = Node::Kind::HostCall;
    node.function = function;
    node.user = user;
    submit(object(stream), std::move(node));
  });
}

aa_status* event_create(aa_device* device, uint32_t flags, aa_event** out) {
  return guarded([&] {
    auto* event = new EventObject;
    event->device = &object(device);
    event->flags = flags;
    *out = reinterpret_cast<aa_event*>(event);
  });
}

aa_status* event_destroy(aa_event* event) {
  delete &object(event);
  return nullptr;
}

aa_status* event_record(aa_event* event, aa_stream* stream) {
  return guarded([&] {
    Node node{};
    node.kind = Node::Kind::EventRecord;
    node.event = object(event).core;
    submit(object(stream), std::move(node));
  });
}

aa_status* event_query(aa_event*, int32_t* out_done) {
  *out_done = 1;
  return nullptr;
}

aa_status* event_synchronize(aa_event*) { return nullptr; }

aa_status* event_elapsed(aa_event* start, aa_event* end, double* out_milliseconds) {
  return guarded([&] {
    for (aa_event* event : {start, end}) {
      if (!(object(event).flags & AA_EVENT_TIMING)) {
        throw InvalidArgument("an event was made without timing", AA_FAILED_PRECONDITION);
      }
      if (object(event).core->nanoseconds < 0) {
        throw InvalidArgument("an event was never recorded", AA_FAILED_PRECONDITION);
      }
    }
    *out_milliseconds = static_cast<double>(object(end).core->nanoseconds - object(start).core->nanoseconds) * 1e-6;
  });
}

// ---- host memory
// -------------------------------------------------------------------------------------------------------

const aa_host_memory_table host_memory_table = {
    sizeof(aa_host_memory_table),
    AA_HOST_MEMORY_VERSION,
    [](aa_device*, void* pointer, size_t size) { return guarded([&] { register_range(pointer, size); }); },
    [](aa_device*, void* pointer) { return guarded([&] { unregister_range(pointer); }); },
    [](aa_device* device, size_t size, int32_t numa_node, void** out) {
      return guarded([&] {
        const int node = numa_node >= 0 ? numa_node : node_of(object(device).index).os_index;
        *out = allocate(size, AA_MEMORY_PINNED, node);
      });
    },
};

constexpr aa_driver table = {
    .struct_size = sizeof(aa_driver),
    .abi_version = AA_ABI_CURRENT,
    .name = "cpu",
    .vendor = "anyaccel",
    .version = "1.0",
#if defined(__SANITIZE_ADDRESS__)
    .sanitizer = "address",
#elif defined(__SANITIZE_THREAD__)
    .sanitizer = "thread",
#else
    .sanitizer = "",
#endif
    .communication_backend = "gloo",
    .visible_devices_env = "",
    .export_env_prefixes = "OMP_",
    .probe = probe,
    .initialize = initialize,
    .shutdown = shutdown,
    .query_extension = query_extension,
    .device_count = get_device_count,
    .device_props = device_props,
    .device_open = device_open,
    .device_close = device_close,
    .device_synchronize = device_synchronize,
    .device_memory_info = device_memory_info,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_query = mem_query,
    .copy_async = copy_async,
    .fill_async = fill_async,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_query,
    .stream_synchronize = stream_synchronize,
    .stream_wait_event = stream_wait_event,
    .stream_native = stream_native,
    .stream_host_call = stream_host_call,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .module_load = nullptr,
    .module_unload = nullptr,
    .kernel_get = nullptr,
    .kernel_launch = nullptr,
};

}  // namespace

const aa_host_memory_table* host_memory_extension() { return &host_memory_table; }

}  // namespace anyaccel::cpu

extern "C" const aa_driver* anyaccel_cpu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host*) {
  return host_abi_min <= AA_ABI_CURRENT && AA_ABI_CURRENT >= AA_ABI_VERSION(host_abi_max >> 16, 0)
             ? &anyaccel::cpu::table
             : nullptr;
}
