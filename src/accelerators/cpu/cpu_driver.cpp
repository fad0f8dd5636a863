// Implements cpu_driver.h: the CPU driver's table.
#include "accelerators/cpu/cpu_driver.h"

#include <chrono>
#include <cstring>
#include <limits>
#include <string>

#include "accelerators/cpu/driver_objects.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/matmul_control.h"
#include "accelerators/cpu/memory.h"
#include "accelerators/cpu/topology.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/sized.hpp"
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

// Flags come from callers of any version.
void refuse_flags(uint32_t flags, uint32_t known, const char* function) {
  if ((flags & ~known) == 0) [[likely]]
    return;
  throw NotImplementedError(std::string(function) + ": flags " + std::to_string(flags) +
                            " have bits that the CPU driver does not know (it knows " + std::to_string(known) + ")");
}

void refuse_while_capturing(StreamObject& stream) {
  if (stream.recorded()) {
    throw InvalidArgument("the stream is capturing a graph and cannot be waited for", AA_FAILED_PRECONDITION);
  }
}

// ---- life, devices -------------------------------------------------------------------------------------------------

aa_status* probe(void*, aa_probe* out) {
  aa_probe found{};
  found.struct_size = out->struct_size;
  found.state = AA_PROBE_USABLE;
  found.device_count = 1;  // how many NUMA nodes there are is read when a device is first used
  set_text(found.reason, sizeof(found.reason), "every machine has one");
  std::memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return nullptr;
}

aa_status* initialize(void*, const aa_initialize_params*, aa_instance** out) {
  return guarded([&] {
    isa();          // an impossible ANYACCEL_CPU_ISA is reported here,
    matmul_mode();  // and an unknown ANYACCEL_CPU_MATMUL,
    overcommits();  // and ANYACCEL_CPU_OVERCOMMIT
    *out = reinterpret_cast<aa_instance*>(&the_instance);
  });
}

aa_status* shutdown(void*, aa_instance*) { return nullptr; }

aa_status* query_extension(void*, aa_instance*, const char* name, uint32_t min_version, const void** out) {
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

aa_status* get_device_count(void*, aa_instance*, int32_t* out) {
  return guarded([&] { *out = device_count(); });
}

aa_status* device_props(void*, aa_instance*, int32_t index, aa_device_props* out) {
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
    props.queue_depth = std::numeric_limits<int32_t>::max();
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

aa_status* device_open(void*, aa_instance*, const aa_device_open_params* params, aa_device** out) {
  return guarded([&] {
    refuse_flags(params->flags, 0, "device_open");
    const int32_t index = params->index;
    if (index < 0 || index >= device_count()) {
      throw InvalidArgument("there is no CPU device " + std::to_string(index), AA_OUT_OF_RANGE);
    }
    auto* device = new DeviceObject;
    device->index = index;
    *out = reinterpret_cast<aa_device*>(device);
  });
}

aa_status* device_close(void*, aa_device* device) {
  delete &object(device);
  return nullptr;
}

aa_status* device_synchronize(void*, aa_device*) { return nullptr; }

aa_status* device_memory_info(void*, aa_device*, int64_t* out_free, int64_t* out_total) {
  return guarded([&] { memory_info(*out_free, *out_total); });
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

aa_status* mem_alloc(void*, aa_device* device, const aa_alloc* what, aa_allocation* out) {
  return guarded([&] {
    refuse_flags(what->flags, 0, "mem_alloc");
    if (what->kind != AA_MEMORY_DEVICE && what->kind != AA_MEMORY_PINNED) {
      throw NotImplementedError("the CPU has no memory of kind " + std::to_string(what->kind));
    }
    if (what->size == 0) throw InvalidArgument("an allocation of 0 bytes was asked for");
    int node = device_count() > 1 ? node_of(object(device).index).os_index : -1;
    if (what->kind == AA_MEMORY_PINNED && what->numa_node >= 0) node = what->numa_node;
    const uint32_t room = out->struct_size;
    auto given = abi::sized<aa_allocation>();
    given.kind = what->kind;
    given.pointer = allocate(what->size, what->kind, node);
    given.size = what->size;
    std::memcpy(out, &given, std::min<size_t>(room, sizeof(given)));
    out->struct_size = room;
  });
}

aa_status* mem_free(void*, aa_device*, const aa_allocation* what) {
  release(what->pointer, what->size, what->kind);
  return nullptr;
}

aa_status* mem_query(void*, aa_instance*, const void* pointer, aa_memory_info* out) {
  aa_memory_info info{};
  info.struct_size = out->struct_size;
  if (!query(pointer, info)) return make_status(AA_NOT_FOUND, "the pointer is not memory of the CPU driver");
  info.device_address = const_cast<void*>(pointer);
  std::memcpy(out, &info, std::min<size_t>(info.struct_size, sizeof(info)));
  return nullptr;
}

aa_status* copy_async(void*, aa_stream* stream, const aa_copy* what) {
  return guarded([&] {
    refuse_flags(what->flags, 0, "copy_async");
    if (what->direction < AA_COPY_HOST_TO_DEVICE || what->direction > AA_COPY_DEVICE_TO_DEVICE) {
      throw InvalidArgument("there is no copy direction " + std::to_string(what->direction));
    }
    StreamObject& s = object(stream);
    if (!s.recorded()) [[likely]] {
      copy_with_workers(what->destination, what->source, what->size);
      return;
    }
    Node node{};
    node.kind = Node::Kind::Copy;
    node.destination = what->destination;
    node.source = what->source;
    node.size = what->size;
    submit(s, std::move(node));
  });
}

aa_status* fill_async(void*, aa_stream* stream, const aa_fill* what) {
  return guarded([&] {
    refuse_flags(what->flags, 0, "fill_async");
    const size_t pattern_size = what->pattern_size;
    if (pattern_size != 1 && pattern_size != 2 && pattern_size != 4 && pattern_size != 8) {
      throw InvalidArgument("a fill pattern has 1, 2, 4 or 8 bytes, not " + std::to_string(pattern_size));
    }
    if (what->size % pattern_size != 0) {
      throw InvalidArgument("a fill of " + std::to_string(what->size) + " bytes is not a multiple of its pattern of " +
                            std::to_string(pattern_size));
    }
    Node node{};
    node.kind = Node::Kind::Fill;
    node.destination = what->destination;
    node.size = what->size;
    std::memcpy(node.pattern, what->pattern, pattern_size);
    node.pattern_size = pattern_size;
    submit(object(stream), std::move(node));
  });
}

// ---- streams and events
// ------------------------------------------------------------------------------------------------

aa_status* stream_create(void*, aa_device* device, const aa_stream_params* params, aa_stream** out) {
  return guarded([&] {
    refuse_flags(params->flags, AA_STREAM_NON_BLOCKING, "stream_create");
    auto* stream = new StreamObject;
    stream->device = &object(device);
    *out = reinterpret_cast<aa_stream*>(stream);
  });
}

aa_status* stream_destroy(void*, aa_stream* stream) {
  delete &object(stream);
  return nullptr;
}

aa_status* stream_query(void*, aa_stream* stream, int32_t* out_done) {
  return guarded([&] {
    refuse_while_capturing(object(stream));
    *out_done = 1;
  });
}

aa_status* stream_synchronize(void*, aa_stream* stream) {
  return guarded([&] { refuse_while_capturing(object(stream)); });
}

// All work recorded before has run already; inside a capture the order of recording is the order of replay. A stream that waits
// for an event of a capture takes part in it.
aa_status* stream_wait_event(void*, aa_stream* stream, aa_event* event) {
  EventObject& e = object(event);
  if (!e.captured) [[likely]]
    return nullptr;
  return guarded([&] {
    const std::lock_guard lock(e.mutex);
    StreamObject& s = object(stream);
    if (!e.capture || !e.capture->open || e.capture == s.capture) return;
    if (s.recorded()) {
      throw InvalidArgument(
          "the stream and the event belong to two captures; end the capture of the event's stream "
          "first, or record both streams in one capture",
          AA_FAILED_PRECONDITION);
    }
    s.capture = e.capture;
  });
}

aa_status* stream_native(void*, aa_stream*, void** out) {
  *out = nullptr;
  return nullptr;
}

aa_status* stream_host_call(void*, aa_stream* stream, void (*function)(void*), void* user) {
  return guarded([&] {
    Node node{};
    node.kind = Node::Kind::HostCall;
    node.function = function;
    node.user = user;
    submit(object(stream), std::move(node));
  });
}

aa_status* event_create(void*, aa_device* device, const aa_event_params* params, aa_event** out) {
  return guarded([&] {
    refuse_flags(params->flags, AA_EVENT_TIMING | AA_EVENT_BLOCKING_SYNC, "event_create");
    auto* event = new EventObject;
    event->device = &object(device);
    event->flags = params->flags;
    *out = reinterpret_cast<aa_event*>(event);
  });
}

aa_status* event_destroy(void*, aa_event* event) {
  delete &object(event);
  return nullptr;
}

aa_status* event_record(void*, aa_event* event, aa_stream* stream) {
  return guarded([&] {
    Node node{};
    node.kind = Node::Kind::EventRecord;
    EventObject& e = object(event);
    StreamObject& s = object(stream);
    node.event = e.core;
    const bool captured = s.recorded() != nullptr;
    submit(s, std::move(node));
    if (!captured && !e.captured) [[likely]]
      return;
    const std::lock_guard lock(e.mutex);
    e.capture = captured ? s.capture : nullptr;
    e.captured = captured;
  });
}

aa_status* event_query(void*, aa_event*, int32_t* out_done) {
  *out_done = 1;
  return nullptr;
}

aa_status* event_synchronize(void*, aa_event*) { return nullptr; }

aa_status* event_elapsed(void*, aa_event* start, aa_event* end, double* out_milliseconds) {
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
    .struct_size = sizeof(aa_host_memory_table),
    .version = AA_HOST_MEMORY_VERSION,
    .self = nullptr,
    .register_range =
        [](void*, aa_device*, const aa_register* what, aa_registration* out) {
          return guarded([&] {
            refuse_flags(what->flags, AA_REGISTER_READ_ONLY, "register_range");
            register_range(what->pointer, what->size);
            const uint32_t room = out->struct_size;
            auto registration = abi::sized<aa_registration>();
            registration.device_address = what->pointer;
            std::memcpy(out, &registration, std::min<size_t>(room, sizeof(registration)));
            out->struct_size = room;
          });
        },
    .unregister_range = [](void*, aa_device*, void* pointer) { return guarded([&] { unregister_range(pointer); }); },
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
    .options = nullptr,
    .option_count = 0,
    .abi_draft = AA_ABI_DRAFT,
    .priority = 0,
    .flags = 0,
    .op_builders = nullptr,
    .toolchain = nullptr,
    .self = nullptr,
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
    .device_native = nullptr,
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
