// The second half of driver_class.hpp: the C tables that are emitted from the classes there. Include that one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::abi {
namespace detail {

// Hidden, so that two plugins in one process never share these through the dynamic linker.
inline std::atomic<const aa_host*> host_pointer __attribute__((visibility("hidden"))){nullptr};

constexpr const char* built_with_sanitizer() noexcept {
#if defined(__SANITIZE_ADDRESS__)
  return "address";
#elif defined(__SANITIZE_THREAD__)
  return "thread";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return "address";
#elif __has_feature(thread_sanitizer)
  return "thread";
#else
  return "";
#endif
#else
  return "";
#endif
}

inline aa_status* make_status(int32_t code, int64_t native_code, const char* message) noexcept {
  return host_pointer.load(std::memory_order_acquire)
      ->status_create(code == AA_OK ? AA_INTERNAL : code, native_code, message, std::strlen(message));
}

// The status for the exception that is being handled; only inside a catch block.
[[gnu::cold]] inline aa_status* status_of_exception() noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    return make_status(failure.code(), failure.native_code(), failure.what());
  } catch (const std::bad_alloc&) {
    return make_status(AA_RESOURCE_EXHAUSTED, 0, "out of host memory");
  } catch (const std::exception& exception) {
    return make_status(AA_INTERNAL, 0, exception.what());
  } catch (...) {
    return make_status(AA_INTERNAL, 0, "an exception that is not a std::exception");
  }
}

template <class Body>
inline aa_status* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return status_of_exception();
  }
}

// Closes and deletes; the error of close() is reported, the object goes all the same.
template <class Object>
inline aa_status* destroy(Object* object) noexcept {
  return guarded([&] {
    std::unique_ptr<Object> owner(object);
    if (owner) owner->close();
  });
}

// Copies what the reader's struct has room for, which may be less than this header knows; its size stays as it was.
template <class Struct>
inline void write_sized(Struct* out, const Struct& value) noexcept {
  const uint32_t room = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(room, sizeof(Struct)));
  out->struct_size = room;
}

template <class Struct>
inline Struct sized() noexcept {
  Struct value{};
  value.struct_size = sizeof(Struct);
  return value;
}

template <class Object>
inline Object* checked(std::unique_ptr<Object> object, const char* function) {
  if (!object) throw Failure(AA_INTERNAL, std::string(function) + " of the driver class returned null");
  return object.release();
}

// ---- extension tables: the same for every driver class ----

inline constexpr aa_graph_table graph_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_graph_table),
    .version = AA_GRAPH_VERSION,
    .capture_begin = [](aa_stream* stream) noexcept { return guarded([&] { object(stream).capture_begin(); }); },
    .capture_end =
        [](aa_stream* stream, aa_graph** out_graph) noexcept {
          return guarded([&] {
            auto graph = object(stream).capture_end();
            if (out_graph) *out_graph = handle(checked(std::move(graph), "capture_end"));
          });
        },
    .capture_status = [](aa_stream* stream,
                         int32_t* out) noexcept { return guarded([&] { *out = object(stream).capturing(); }); },
    .launch = [](aa_graph* graph,
                 aa_stream* stream) noexcept { return guarded([&] { object(graph).launch(object(stream)); }); },
    .node_count = [](aa_graph* graph,
                     int64_t* out_count) noexcept { return guarded([&] { *out_count = object(graph).node_count(); }); },
    .destroy = [](aa_graph* graph) noexcept { return destroy(reinterpret_cast<Graph*>(graph)); },
};

inline constexpr aa_host_memory_table host_memory_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_host_memory_table),
    .version = AA_HOST_MEMORY_VERSION,
    .register_range =
        [](aa_device* device, void* pointer, size_t size) noexcept {
          return guarded([&] { object(device).register_range(pointer, size); });
        },
    .unregister_range =
        [](aa_device* device, void* pointer) noexcept {
          return guarded([&] { object(device).unregister_range(pointer); });
        },
    .alloc_on_node =
        [](aa_device* device, size_t size, int32_t numa_node, void** out_pointer) noexcept {
          return guarded([&] { *out_pointer = object(device).alloc_on_node(size, numa_node); });
        },
};

inline constexpr aa_ops_table ops_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_ops_table),
    .version = AA_OPS_VERSION,
    .find =
        [](aa_instance* instance, const char* name, int32_t* out_op) noexcept {
          return guarded([&] {
            const int32_t op = object(instance).find_op(name);
            if (op < 0) throw Failure(AA_NOT_FOUND, std::string("no op named \"") + name + "\" in this driver");
            *out_op = op;
          });
        },
    .supports =
        [](aa_device* device, const aa_op_call* call, int32_t* out_supported) noexcept {
          return guarded([&] { *out_supported = object(device).supports_op(*call); });
        },
    .enqueue = [](aa_stream* stream,
                  const aa_op_call* call) noexcept { return guarded([&] { object(stream).enqueue_op(*call); }); },
};

inline constexpr aa_compiler_table compiler_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_compiler_table),
    .version = AA_COMPILER_VERSION,
    .languages =
        [](aa_device* device, const char** out_languages) noexcept {
          return guarded([&] { *out_languages = object(device).compile_languages(); });
        },
    .fingerprint =
        [](aa_device* device, char* out_text, size_t size) noexcept {
          return guarded([&] {
            const std::string text = object(device).compile_fingerprint();
            if (text.size() >= size) throw Failure(AA_OUT_OF_RANGE, "the buffer for the fingerprint is too small");
            std::memcpy(out_text, text.c_str(), text.size() + 1);
          });
        },
    .compile =
        [](aa_device* device, const char* language, const char* name, const char* source, size_t source_size,
           const char* const* options, size_t option_count, aa_compile_result* out_result) noexcept {
          return guarded([&] {
            auto output = std::make_unique<CompileOutput>(
                object(device).compile(language, name, source, source_size, options, option_count));
            auto result = sized<aa_compile_result>();
            result.succeeded = output->succeeded;
            result.image = output->succeeded ? output->image.data() : nullptr;
            result.image_size = output->succeeded ? output->image.size() : 0;
            result.format = output->format.c_str();
            result.log = output->log.c_str();
            result.owner = output.release();
            write_sized(out_result, result);
          });
        },
    .release = [](aa_compile_result* result) noexcept -> aa_status* {
      delete static_cast<CompileOutput*>(result->owner);
      result->owner = nullptr;
      return nullptr;
    },
    .kernel_tuning =
        [](aa_device* device, aa_kernel_tuning* out_tuning) noexcept {
          return guarded([&] {
            auto tuning = sized<aa_kernel_tuning>();
            object(device).kernel_tuning(tuning);
            write_sized(out_tuning, tuning);
          });
        },
};

inline constexpr aa_profiler_table profiler_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_profiler_table),
    .version = AA_PROFILER_VERSION,
    .range_push =
        [](aa_instance* instance, const char* message, const char* domain, const char* category) noexcept {
          return guarded([&] { object(instance).range_push(message, domain, category); });
        },
    .range_pop = [](aa_instance* instance,
                    const char* domain) noexcept { return guarded([&] { object(instance).range_pop(domain); }); },
    .mark = [](aa_instance* instance, const char* message,
               const char* domain) noexcept { return guarded([&] { object(instance).mark(message, domain); }); },
};

inline constexpr aa_ceilings_table ceilings_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_ceilings_table),
    .version = AA_CEILINGS_VERSION,
    .measure =
        [](aa_device* device, int32_t kind, size_t bytes, double seconds, double* out_value) noexcept {
          return guarded([&] { *out_value = object(device).measure_ceiling(kind, bytes, seconds); });
        },
};

inline constexpr aa_collectives_table collectives_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_collectives_table),
    .version = AA_COLLECTIVES_VERSION,
    .library =
        [](aa_instance* instance, const char** out_name, const char** out_version) noexcept {
          return guarded([&] { object(instance).collectives_library(*out_name, *out_version); });
        },
    .id_size =
        [](aa_instance* instance, size_t* out_size) noexcept {
          return guarded([&] { *out_size = object(instance).collectives_id_size(); });
        },
    .id_create = [](aa_instance* instance,
                    void* out_id) noexcept { return guarded([&] { object(instance).collectives_id_create(out_id); }); },
    .comm_create =
        [](aa_device* device, const void* id, int32_t rank, int32_t size, aa_comm** out_comm) noexcept {
          return guarded(
              [&] { *out_comm = handle(checked(object(device).comm_create(id, rank, size), "comm_create")); });
        },
    .comm_destroy = [](aa_comm* comm) noexcept { return destroy(reinterpret_cast<Communicator*>(comm)); },
    .comm_abort = [](aa_comm* comm) noexcept { return guarded([&] { object(comm).abort(); }); },
    .async_error = [](aa_comm* comm) noexcept { return guarded([&] { object(comm).async_error(); }); },
    .group_begin =
        [](aa_instance* instance) noexcept { return guarded([&] { object(instance).collectives_group_begin(); }); },
    .group_end =
        [](aa_instance* instance) noexcept { return guarded([&] { object(instance).collectives_group_end(); }); },
    .all_reduce =
        [](aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t op) noexcept {
          return guarded([&] { object(comm).all_reduce(object(stream), send, recv, count, dtype, op); });
        },
    .reduce =
        [](aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype, int32_t op,
           int32_t root) noexcept {
          return guarded([&] { object(comm).reduce(object(stream), send, recv, count, dtype, op, root); });
        },
    .broadcast =
        [](aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t root) noexcept {
          return guarded([&] { object(comm).broadcast(object(stream), send, recv, count, dtype, root); });
        },
    .all_gather =
        [](aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype) noexcept {
          return guarded([&] { object(comm).all_gather(object(stream), send, recv, count, dtype); });
        },
    .reduce_scatter =
        [](aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t op) noexcept {
          return guarded([&] { object(comm).reduce_scatter(object(stream), send, recv, count, dtype, op); });
        },
    .send =
        [](aa_comm* comm, aa_stream* stream, const void* data, size_t count, int32_t dtype, int32_t peer) noexcept {
          return guarded([&] { object(comm).send(object(stream), data, count, dtype, peer); });
        },
    .recv =
        [](aa_comm* comm, aa_stream* stream, void* data, size_t count, int32_t dtype, int32_t peer) noexcept {
          return guarded([&] { object(comm).recv(object(stream), data, count, dtype, peer); });
        },
};

// The extension table called `name` among `offered`, or null.
inline const void* find_extension(uint32_t offered, const char* name, uint32_t min_version) noexcept {
  struct Row {
    uint32_t bit;
    const char* name;
    uint32_t version;
    const void* table;
  };
  const Row rows[] = {{graph_extension, AA_GRAPH_EXTENSION, AA_GRAPH_VERSION, &graph_table},
                      {host_memory_extension, AA_HOST_MEMORY_EXTENSION, AA_HOST_MEMORY_VERSION, &host_memory_table},
                      {ops_extension, AA_OPS_EXTENSION, AA_OPS_VERSION, &ops_table},
                      {compiler_extension, AA_COMPILER_EXTENSION, AA_COMPILER_VERSION, &compiler_table},
                      {profiler_extension, AA_PROFILER_EXTENSION, AA_PROFILER_VERSION, &profiler_table},
                      {ceilings_extension, AA_CEILINGS_EXTENSION, AA_CEILINGS_VERSION, &ceilings_table},
                      {collectives_extension, AA_COLLECTIVES_EXTENSION, AA_COLLECTIVES_VERSION, &collectives_table}};
  for (const Row& row : rows) {
    if ((offered & row.bit) && min_version <= row.version && std::strcmp(name, row.name) == 0) return row.table;
  }
  return nullptr;
}

// ---- the driver table: one for each driver class ----

template <class DriverType>
struct __attribute__((visibility("hidden"))) Emitted {
  static const aa_driver table;
};

template <class DriverType>
constexpr aa_driver Emitted<DriverType>::table = {
    .struct_size = sizeof(aa_driver),
    .abi_version = AA_ABI_CURRENT,
    .name = DriverType::facts.name,
    .vendor = DriverType::facts.vendor,
    .version = DriverType::facts.version,
    .sanitizer = DriverType::facts.sanitizer ? DriverType::facts.sanitizer : built_with_sanitizer(),
    .communication_backend = DriverType::facts.communication_backend,
    .visible_devices_env = DriverType::facts.visible_devices_env,
    .export_env_prefixes = DriverType::facts.export_env_prefixes,

    .probe =
        [](aa_probe* out_probe) noexcept {
          return guarded([&] {
            auto probe = sized<aa_probe>();
            DriverType::probe(probe);
            write_sized(out_probe, probe);
          });
        },
    .initialize =
        [](const aa_initialize_params* params, aa_instance** out_instance) noexcept {
          return guarded([&] {
            std::unique_ptr<Driver> driver = DriverType::initialize(*params);
            *out_instance = handle(checked(std::move(driver), "initialize"));
          });
        },
    .shutdown = [](aa_instance* instance) noexcept { return destroy(reinterpret_cast<Driver*>(instance)); },
    .query_extension =
        [](aa_instance* instance, const char* name, uint32_t min_version, const void** out_table) noexcept {
          return guarded([&] {
            const void* table = find_extension(object(instance).extensions(), name, min_version);
            if (!table) {
              throw Failure(AA_UNIMPLEMENTED, std::string("no extension \"") + name + "\" of version " +
                                                  std::to_string(min_version) + " or later in this driver");
            }
            *out_table = table;
          });
        },

    .device_count =
        [](aa_instance* instance, int32_t* out_count) noexcept {
          return guarded([&] { *out_count = object(instance).device_count(); });
        },
    .device_props =
        [](aa_instance* instance, int32_t index, aa_device_props* out_props) noexcept {
          return guarded([&] {
            auto props = sized<aa_device_props>();
            props.numa_node = -1;
            object(instance).device_props(index, props);
            write_sized(out_props, props);
          });
        },
    .device_open =
        [](aa_instance* instance, int32_t index, aa_device** out_device) noexcept {
          return guarded([&] { *out_device = handle(checked(object(instance).device_open(index), "device_open")); });
        },
    .device_close = [](aa_device* device) noexcept { return destroy(reinterpret_cast<Device*>(device)); },
    .device_synchronize = [](aa_device* device) noexcept { return guarded([&] { object(device).synchronize(); }); },
    .device_memory_info =
        [](aa_device* device, int64_t* out_free, int64_t* out_total) noexcept {
          return guarded([&] {
            int64_t free = 0;
            int64_t total = 0;
            object(device).memory_info(free, total);
            *out_free = free;
            *out_total = total;
          });
        },

    .mem_alloc =
        [](aa_device* device, int32_t kind, size_t size, void** out_pointer) noexcept {
          return guarded([&] { *out_pointer = object(device).mem_alloc(kind, size); });
        },
    .mem_free = [](aa_device* device, int32_t kind, void* pointer,
                   size_t size) noexcept { return guarded([&] { object(device).mem_free(kind, pointer, size); }); },
    .mem_query =
        [](aa_instance* instance, const void* pointer, aa_memory_info* out_info) noexcept {
          return guarded([&] {
            auto info = sized<aa_memory_info>();
            if (!object(instance).mem_query(pointer, info)) {
              throw Failure(AA_NOT_FOUND, "memory that this driver did not allocate");
            }
            write_sized(out_info, info);
          });
        },
    .copy_async =
        [](aa_stream* stream, void* destination, const void* source, size_t size, int32_t direction) noexcept {
          return guarded([&] {
            if (direction < AA_COPY_HOST_TO_DEVICE || direction > AA_COPY_DEVICE_TO_DEVICE) {
              throw Failure(AA_INVALID_ARGUMENT, "no copy direction has the number " + std::to_string(direction));
            }
            if (size > 0) object(stream).copy(destination, source, size, static_cast<aa_copy_direction>(direction));
          });
        },
    .fill_async =
        [](aa_stream* stream, void* destination, const void* pattern, size_t pattern_size, size_t size) noexcept {
          return guarded([&] {
            if (pattern_size != 1 && pattern_size != 2 && pattern_size != 4 && pattern_size != 8) {
              throw Failure(AA_INVALID_ARGUMENT,
                            "a pattern has 1, 2, 4 or 8 bytes, not " + std::to_string(pattern_size));
            }
            if (size % pattern_size != 0) {
              throw Failure(AA_INVALID_ARGUMENT, std::to_string(size) + " bytes are no multiple of the pattern's " +
                                                     std::to_string(pattern_size));
            }
            if (size > 0) object(stream).fill(destination, pattern, pattern_size, size);
          });
        },

    .stream_create =
        [](aa_device* device, int32_t priority, uint32_t flags, aa_stream** out_stream) noexcept {
          return guarded(
              [&] { *out_stream = handle(checked(object(device).stream_create(priority, flags), "stream_create")); });
        },
    .stream_destroy = [](aa_stream* stream) noexcept { return destroy(reinterpret_cast<Stream*>(stream)); },
    .stream_query = [](aa_stream* stream,
                       int32_t* out_done) noexcept { return guarded([&] { *out_done = object(stream).query(); }); },
    .stream_synchronize = [](aa_stream* stream) noexcept { return guarded([&] { object(stream).synchronize(); }); },
    .stream_wait_event =
        [](aa_stream* stream, aa_event* event) noexcept {
          return guarded([&] { object(stream).wait_event(object(event)); });
        },
    .stream_native = [](aa_stream* stream,
                        void** out_handle) noexcept { return guarded([&] { *out_handle = object(stream).native(); }); },
    .stream_host_call = [](aa_stream* stream, void (*function)(void*),
                           void* user) noexcept { return guarded([&] { object(stream).host_call(function, user); }); },

    .event_create =
        [](aa_device* device, uint32_t flags, aa_event** out_event) noexcept {
          return guarded([&] { *out_event = handle(checked(object(device).event_create(flags), "event_create")); });
        },
    .event_destroy = [](aa_event* event) noexcept { return destroy(reinterpret_cast<Event*>(event)); },
    .event_record = [](aa_event* event,
                       aa_stream* stream) noexcept { return guarded([&] { object(event).record(object(stream)); }); },
    .event_query = [](aa_event* event,
                      int32_t* out_done) noexcept { return guarded([&] { *out_done = object(event).query(); }); },
    .event_synchronize = [](aa_event* event) noexcept { return guarded([&] { object(event).synchronize(); }); },
    .event_elapsed =
        [](aa_event* start, aa_event* end, double* out_milliseconds) noexcept {
          return guarded([&] { *out_milliseconds = object(start).elapsed(object(end)); });
        },

    .module_load =
        [](aa_device* device, const void* image, size_t size, const char* format, aa_module** out_module) noexcept {
          return guarded(
              [&] { *out_module = handle(checked(object(device).module_load(image, size, format), "module_load")); });
        },
    .module_unload = [](aa_module* module) noexcept { return destroy(reinterpret_cast<Module*>(module)); },
    .kernel_get =
        [](aa_module* module, const char* name, aa_kernel** out_kernel, aa_kernel_info* out_info) noexcept {
          return guarded([&] {
            auto info = sized<aa_kernel_info>();
            info.argument_count = -1;
            Kernel* kernel = object(module).kernel_get(name, info);
            if (!kernel) throw Failure(AA_NOT_FOUND, std::string("no kernel \"") + name + "\" in the module");
            if (out_info) write_sized(out_info, info);
            *out_kernel = handle(kernel);
          });
        },
    .kernel_launch =
        [](aa_stream* stream, aa_kernel* kernel, const aa_launch* launch) noexcept {
          return guarded([&] { object(stream).launch(object(kernel), *launch); });
        },
};

}  // namespace detail

template <class DriverType>
const aa_driver* driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) noexcept {
  static_assert(DriverType::facts.name != nullptr, "the driver class must give its name in `facts`");
  // A host of the same major reads a newer table too (members are only appended); an older one only if it says so.
  const bool common = AA_ABI_CURRENT >= host_abi_min && AA_ABI_MAJOR <= (host_abi_max >> 16);
  if (!common || !host || !AA_HAS_MEMBER(host, aa_host, log)) return nullptr;
  detail::host_pointer.store(host, std::memory_order_release);
  return &detail::Emitted<DriverType>::table;
}

inline void log(aa_log_level level, const std::string& message) noexcept {
  if (const aa_host* host = detail::host_pointer.load(std::memory_order_acquire)) {
    host->log(level, message.data(), message.size());
  }
}

}  // namespace anyaccel::abi
