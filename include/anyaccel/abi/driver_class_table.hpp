// The second half of driver_class.hpp: the C tables that are emitted from its classes. Include driver_class.hpp
// instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::abi {
namespace detail {

// Hidden, so that the dynamic linker never makes two plugins in one process share these.
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
  const aa_host* host = host_pointer.load(std::memory_order_acquire);
  return host->status_create(host, code == AA_OK ? AA_INTERNAL : code, native_code, message, std::strlen(message));
}

// Returns the status for the exception that is being handled; call it only inside a catch block.
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

// Closes and deletes the object; an error of close() is reported, but the object is deleted nevertheless.
template <class Object>
inline aa_status* destroy(Object* object) noexcept {
  return guarded([&] {
    std::unique_ptr<Object> owner(object);
    if (owner) owner->close();
  });
}

// Copies as much as the reader's struct has room for, which may be less than this header knows; struct_size is
// unchanged.
template <class Struct>
inline void write_sized(Struct* out, const Struct& value) noexcept {
  const uint32_t room = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(room, sizeof(Struct)));
  out->struct_size = room;
}

// Returns a struct of arguments as this header knows it: the caller's own, or, if an older caller's struct is too
// short, a copy in which the missing members are zero.
template <class Struct>
class Known {
 public:
  explicit Known(const Struct* in) noexcept : value_(in) {
    if (in->struct_size < sizeof(Struct)) [[unlikely]] {
      copy_ = Struct{};
      std::memcpy(static_cast<void*>(&copy_), in, in->struct_size);
      copy_.struct_size = sizeof(Struct);
      value_ = &copy_;
    }
  }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;
  const Struct& operator*() const noexcept { return *value_; }
  const Struct* operator->() const noexcept { return value_; }

 private:
  const Struct* value_;
  union {
    Struct copy_;
  };
};

// Rejects flags that this header does not know.
inline void check_flags(uint32_t flags, uint32_t known, const char* function) {
  if ((flags & ~known) == 0) return;
  throw Failure(AA_UNIMPLEMENTED, std::string(function) + ": flags " + std::to_string(flags) +
                                      " have bits that this driver does not know (it knows " + std::to_string(known) +
                                      ")");
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
    .self = nullptr,
    .capture_begin = [](void* /*self*/,
                        aa_stream* stream) noexcept { return guarded([&] { object(stream).capture_begin(); }); },
    .capture_end =
        [](void* /*self*/, aa_stream* stream, aa_graph** out_graph) noexcept {
          return guarded([&] {
            auto graph = object(stream).capture_end();
            if (out_graph) *out_graph = handle(checked(std::move(graph), "capture_end"));
          });
        },
    .capture_status = [](void* /*self*/, aa_stream* stream,
                         int32_t* out) noexcept { return guarded([&] { *out = object(stream).capturing(); }); },
    .launch = [](void* /*self*/, aa_graph* graph,
                 aa_stream* stream) noexcept { return guarded([&] { object(graph).launch(object(stream)); }); },
    .node_count = [](void* /*self*/, aa_graph* graph,
                     int64_t* out_count) noexcept { return guarded([&] { *out_count = object(graph).node_count(); }); },
    .destroy = [](void* /*self*/, aa_graph* graph) noexcept { return destroy(reinterpret_cast<Graph*>(graph)); },
};

inline constexpr aa_host_memory_table host_memory_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_host_memory_table),
    .version = AA_HOST_MEMORY_VERSION,
    .self = nullptr,
    .register_range =
        [](void* /*self*/, aa_device* device, const aa_register* what, aa_registration* out_registration) noexcept {
          return guarded([&] {
            const Known<aa_register> known(what);
            check_flags(known->flags, AA_REGISTER_READ_ONLY, "register_range");
            auto registration = sized<aa_registration>();
            object(device).register_range(*known, registration);
            write_sized(out_registration, registration);
          });
        },
    .unregister_range =
        [](void* /*self*/, aa_device* device, void* pointer) noexcept {
          return guarded([&] { object(device).unregister_range(pointer); });
        },
};

inline constexpr aa_ops_table ops_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_ops_table),
    .version = AA_OPS_VERSION,
    .self = nullptr,
    .find =
        [](void* /*self*/, aa_instance* instance, const char* name, int32_t* out_op) noexcept {
          return guarded([&] {
            const int32_t op = object(instance).find_op(name);
            if (op < 0) throw Failure(AA_NOT_FOUND, std::string("no op named \"") + name + "\" in this driver");
            *out_op = op;
          });
        },
    .supports =
        [](void* /*self*/, aa_device* device, const aa_op_call* call, int32_t* out_supported) noexcept {
          return guarded([&] { *out_supported = object(device).supports_op(*call); });
        },
    .enqueue =
        [](void* /*self*/, aa_stream* stream, const aa_op_call* call, int32_t* out_taken) noexcept {
          return guarded([&] { *out_taken = object(stream).enqueue_op(*call); });
        },
    .packed_size =
        [](void* /*self*/, aa_device* device, const aa_pack* what, size_t* out_bytes) noexcept {
          return guarded([&] {
            check_flags(what->flags, 0, "packed_size");
            *out_bytes = object(device).packed_size(*what);
          });
        },
    .pack =
        [](void* /*self*/, aa_stream* stream, const aa_pack* what, const aa_tensor* weight, const aa_allocation* into,
           aa_packed** out_packed) noexcept {
          return guarded([&] {
            check_flags(what->flags, 0, "pack");
            *out_packed = handle(checked(object(stream).pack(*what, *weight, *into), "pack"));
          });
        },
    .unpack =
        [](void* /*self*/, aa_stream* stream, aa_packed* packed, const aa_tensor* out_weight) noexcept {
          return guarded([&] { object(stream).unpack(object(packed), *out_weight); });
        },
    .packed_destroy = [](void* /*self*/,
                         aa_packed* packed) noexcept { return destroy(reinterpret_cast<Packed*>(packed)); },
};

inline constexpr aa_compiler_table compiler_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_compiler_table),
    .version = AA_COMPILER_VERSION,
    .self = nullptr,
    .languages =
        [](void* /*self*/, aa_device* device, const char** out_languages) noexcept {
          return guarded([&] { *out_languages = object(device).compile_languages(); });
        },
    .fingerprint =
        [](void* /*self*/, aa_device* device, char* out_text, size_t size) noexcept {
          return guarded([&] {
            const std::string text = object(device).compile_fingerprint();
            if (text.size() >= size) throw Failure(AA_OUT_OF_RANGE, "the buffer for the fingerprint is too small");
            std::memcpy(out_text, text.c_str(), text.size() + 1);
          });
        },
    .compile =
        [](void* /*self*/, aa_device* device, const aa_compile* what, aa_compile_result* out_result) noexcept {
          return guarded([&] {
            const Known<aa_compile> known(what);
            check_flags(known->flags, 0, "compile");
            auto output = std::make_unique<CompileOutput>(object(device).compile(*known));
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
    .release = [](void* /*self*/, aa_compile_result* result) noexcept -> aa_status* {
      delete static_cast<CompileOutput*>(result->owner);
      result->owner = nullptr;
      return nullptr;
    },
    .kernel_tuning =
        [](void* /*self*/, aa_device* device, aa_kernel_tuning* out_tuning) noexcept {
          return guarded([&] {
            auto tuning = sized<aa_kernel_tuning>();
            object(device).kernel_tuning(tuning);
            write_sized(out_tuning, tuning);
          });
        },
    .dialect =
        [](void* /*self*/, aa_device* device, const char* language, const char** out_folder) noexcept {
          return guarded([&] { *out_folder = object(device).dialect(language); });
        },
};

inline constexpr aa_profiler_table profiler_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_profiler_table),
    .version = AA_PROFILER_VERSION,
    .self = nullptr,
    .range_push =
        [](void* /*self*/, aa_instance* instance, const char* message, const char* domain,
           const char* category) noexcept {
          return guarded([&] { object(instance).range_push(message, domain, category); });
        },
    .range_pop = [](void* /*self*/, aa_instance* instance,
                    const char* domain) noexcept { return guarded([&] { object(instance).range_pop(domain); }); },
    .mark = [](void* /*self*/, aa_instance* instance, const char* message,
               const char* domain) noexcept { return guarded([&] { object(instance).mark(message, domain); }); },
};

inline constexpr aa_ceilings_table ceilings_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_ceilings_table),
    .version = AA_CEILINGS_VERSION,
    .self = nullptr,
    .measure =
        [](void* /*self*/, aa_device* device, int32_t kind, size_t bytes, double seconds, double* out_value) noexcept {
          return guarded([&] { *out_value = object(device).measure_ceiling(kind, bytes, seconds); });
        },
};

inline constexpr aa_collectives_table collectives_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_collectives_table),
    .version = AA_COLLECTIVES_VERSION,
    .self = nullptr,
    .library =
        [](void* /*self*/, aa_instance* instance, const char** out_name, const char** out_version) noexcept {
          return guarded([&] { object(instance).collectives_library(*out_name, *out_version); });
        },
    .id_size =
        [](void* /*self*/, aa_instance* instance, size_t* out_size) noexcept {
          return guarded([&] { *out_size = object(instance).collectives_id_size(); });
        },
    .id_create = [](void* /*self*/, aa_instance* instance,
                    void* out_id) noexcept { return guarded([&] { object(instance).collectives_id_create(out_id); }); },
    .comm_create =
        [](void* /*self*/, aa_device* device, const void* id, int32_t rank, int32_t size, aa_comm** out_comm) noexcept {
          return guarded(
              [&] { *out_comm = handle(checked(object(device).comm_create(id, rank, size), "comm_create")); });
        },
    .comm_destroy = [](void* /*self*/,
                       aa_comm* comm) noexcept { return destroy(reinterpret_cast<Communicator*>(comm)); },
    .comm_abort = [](void* /*self*/, aa_comm* comm) noexcept { return guarded([&] { object(comm).abort(); }); },
    .async_error = [](void* /*self*/, aa_comm* comm) noexcept { return guarded([&] { object(comm).async_error(); }); },
    .group_begin =
        [](void* /*self*/, aa_instance* instance) noexcept {
          return guarded([&] { object(instance).collectives_group_begin(); });
        },
    .group_end =
        [](void* /*self*/, aa_instance* instance) noexcept {
          return guarded([&] { object(instance).collectives_group_end(); });
        },
    .all_reduce =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t op) noexcept {
          return guarded([&] { object(comm).all_reduce(object(stream), send, recv, count, dtype, op); });
        },
    .reduce =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t op, int32_t root) noexcept {
          return guarded([&] { object(comm).reduce(object(stream), send, recv, count, dtype, op, root); });
        },
    .broadcast =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t root) noexcept {
          return guarded([&] { object(comm).broadcast(object(stream), send, recv, count, dtype, root); });
        },
    .all_gather =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count,
           int32_t dtype) noexcept {
          return guarded([&] { object(comm).all_gather(object(stream), send, recv, count, dtype); });
        },
    .reduce_scatter =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
           int32_t op) noexcept {
          return guarded([&] { object(comm).reduce_scatter(object(stream), send, recv, count, dtype, op); });
        },
    .send =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, const void* data, size_t count, int32_t dtype,
           int32_t peer) noexcept {
          return guarded([&] { object(comm).send(object(stream), data, count, dtype, peer); });
        },
    .recv =
        [](void* /*self*/, aa_comm* comm, aa_stream* stream, void* data, size_t count, int32_t dtype,
           int32_t peer) noexcept {
          return guarded([&] { object(comm).recv(object(stream), data, count, dtype, peer); });
        },
};

inline constexpr aa_lazy_table lazy_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_lazy_table),
    .version = AA_LAZY_VERSION,
    .self = nullptr,
    .flush = [](void* /*self*/, aa_stream* stream) noexcept { return guarded([&] { object(stream).flush(); }); },
    .step_begin =
        [](void* /*self*/, aa_stream* stream, const aa_step* step) noexcept {
          return guarded([&] {
            const Known<aa_step> known(step);
            check_flags(known->flags, 0, "step_begin");
            object(stream).step_begin(*known);
          });
        },
    .step_end = [](void* /*self*/, aa_stream* stream) noexcept { return guarded([&] { object(stream).step_end(); }); },
};

inline constexpr aa_peer_table peer_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_peer_table),
    .version = AA_PEER_VERSION,
    .self = nullptr,
    .can_copy =
        [](void* /*self*/, aa_device* destination, aa_device* source, int32_t* out_possible) noexcept {
          return guarded(
              [&] { *out_possible = destination != source && object(destination).can_copy_from(object(source)); });
        },
    .copy_async =
        [](void* /*self*/, aa_stream* stream, const aa_peer_copy* what) noexcept {
          return guarded([&] {
            const Known<aa_peer_copy> known(what);
            check_flags(known->flags, 0, "peer copy_async");
            if (known->destination_device == known->source_device) {
              throw Failure(AA_INVALID_ARGUMENT, "peer copy_async within one device: that is copy_async of the driver");
            }
            if (known->size > 0) object(stream).copy_peer(*known);
          });
        },
};

inline constexpr aa_memory_kinds_table memory_kinds_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_memory_kinds_table),
    .version = AA_MEMORY_KINDS_VERSION,
    .self = nullptr,
    .count =
        [](void* /*self*/, aa_device* device, int32_t* out_count) noexcept {
          return guarded([&] { *out_count = object(device).memory_kind_count(); });
        },
    .info =
        [](void* /*self*/, aa_device* device, int32_t index, aa_memory_kind_info* out_info) noexcept {
          return guarded([&] {
            const int32_t count = object(device).memory_kind_count();
            if (index < 0 || index >= count) {
              throw Failure(AA_OUT_OF_RANGE, "memory kind number " + std::to_string(index) +
                                                 " of a device was asked for; it has " + std::to_string(count));
            }
            auto info = sized<aa_memory_kind_info>();
            info.numa_node = -1;
            object(device).memory_kind_info(index, info);
            write_sized(out_info, info);
          });
        },
    .usage =
        [](void* /*self*/, aa_device* device, int32_t kind, int64_t* out_free, int64_t* out_total) noexcept {
          return guarded([&] {
            int64_t free = 0;
            int64_t total = 0;
            object(device).memory_kind_usage(kind, free, total);
            *out_free = free;
            *out_total = total;
          });
        },
};

// Checks what the calls of both directions have in common.
template <class Transfer>
inline aa_status* transfer_file(const aa_file_transfer* what, size_t* out_bytes, Transfer&& transfer) noexcept {
  return guarded([&] {
    const Known<aa_file_transfer> known(what);
    check_flags(known->flags, 0, "files transfer");
    if (known->file_offset < 0) throw Failure(AA_INVALID_ARGUMENT, "files: a negative offset in the file");
    *out_bytes = known->size > 0 ? transfer(*known) : 0;
  });
}

inline constexpr aa_files_table files_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_files_table),
    .version = AA_FILES_VERSION,
    .self = nullptr,
    .info =
        [](void* /*self*/, aa_device* device, aa_files_info* out_info) noexcept {
          return guarded([&] {
            auto info = sized<aa_files_info>();
            object(device).files_info(info);
            write_sized(out_info, info);
          });
        },
    .memory_register =
        [](void* /*self*/, aa_device* device, const aa_file_memory* what) noexcept {
          return guarded([&] {
            const Known<aa_file_memory> known(what);
            check_flags(known->flags, 0, "files memory_register");
            object(device).file_memory_register(*known);
          });
        },
    .memory_unregister =
        [](void* /*self*/, aa_device* device, void* pointer) noexcept {
          return guarded([&] { object(device).file_memory_unregister(pointer); });
        },
    .file_open =
        [](void* /*self*/, aa_device* device, const aa_file_params* params, aa_file** out_file) noexcept {
          return guarded([&] {
            const Known<aa_file_params> known(params);
            check_flags(known->flags, 0, "files file_open");
            *out_file = handle(object(device).file_open(known->descriptor).release());
          });
        },
    .file_close = [](void* /*self*/, aa_file* file) noexcept { return destroy(reinterpret_cast<DirectFile*>(file)); },
    .read =
        [](void* /*self*/, aa_file* file, const aa_file_transfer* what, size_t* out_bytes) noexcept {
          return transfer_file(what, out_bytes,
                               [&](const aa_file_transfer& known) { return object(file).read(known); });
        },
    .write =
        [](void* /*self*/, aa_file* file, const aa_file_transfer* what, size_t* out_bytes) noexcept {
          return transfer_file(what, out_bytes,
                               [&](const aa_file_transfer& known) { return object(file).write(known); });
        },
};

inline constexpr aa_fault_table fault_table __attribute__((visibility("hidden"))) = {
    .struct_size = sizeof(aa_fault_table),
    .version = AA_FAULT_VERSION,
    .self = nullptr,
    .inject =
        [](void* /*self*/, aa_stream* stream, int32_t code, int64_t native_code) noexcept {
          return guarded([&] { object(stream).inject_fault(code, native_code); });
        },
    .executed =
        [](void* /*self*/, aa_stream* stream, int64_t* out_items) noexcept {
          return guarded([&] { *out_items = object(stream).executed_items(); });
        },
};

// Returns the extension table called `name` if it is among `offered`, else null.
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
                      {collectives_extension, AA_COLLECTIVES_EXTENSION, AA_COLLECTIVES_VERSION, &collectives_table},
                      {lazy_extension, AA_LAZY_EXTENSION, AA_LAZY_VERSION, &lazy_table},
                      {peer_extension, AA_PEER_EXTENSION, AA_PEER_VERSION, &peer_table},
                      {memory_kinds_extension, AA_MEMORY_KINDS_EXTENSION, AA_MEMORY_KINDS_VERSION, &memory_kinds_table},
                      {files_extension, AA_FILES_EXTENSION, AA_FILES_VERSION, &files_table},
                      {fault_extension, AA_FAULT_EXTENSION, AA_FAULT_VERSION, &fault_table}};
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
    .options = DriverType::facts.options,
    .option_count = DriverType::facts.option_count,
    .abi_draft = AA_ABI_DRAFT,
    .priority = DriverType::facts.priority,
    .flags = DriverType::facts.flags,
    .op_builders = DriverType::facts.op_builders,
    .toolchain = DriverType::facts.toolchain,
    .self = nullptr,

    .probe =
        [](void* /*self*/, aa_probe* out_probe) noexcept {
          return guarded([&] {
            auto probe = sized<aa_probe>();
            DriverType::probe(probe);
            write_sized(out_probe, probe);
          });
        },
    .initialize =
        [](void* /*self*/, const aa_initialize_params* params, aa_instance** out_instance) noexcept {
          return guarded([&] {
            std::unique_ptr<Driver> driver = DriverType::initialize(*Known<aa_initialize_params>(params));
            *out_instance = handle(checked(std::move(driver), "initialize"));
          });
        },
    .shutdown = [](void* /*self*/,
                   aa_instance* instance) noexcept { return destroy(reinterpret_cast<Driver*>(instance)); },
    .query_extension =
        [](void* /*self*/, aa_instance* instance, const char* name, uint32_t min_version,
           const void** out_table) noexcept {
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
        [](void* /*self*/, aa_instance* instance, int32_t* out_count) noexcept {
          return guarded([&] { *out_count = object(instance).device_count(); });
        },
    .device_props =
        [](void* /*self*/, aa_instance* instance, int32_t index, aa_device_props* out_props) noexcept {
          return guarded([&] {
            auto props = sized<aa_device_props>();
            props.numa_node = -1;
            object(instance).device_props(index, props);
            write_sized(out_props, props);
          });
        },
    .device_open =
        [](void* /*self*/, aa_instance* instance, const aa_device_open_params* params,
           aa_device** out_device) noexcept {
          return guarded([&] {
            const Known<aa_device_open_params> known(params);
            check_flags(known->flags, 0, "device_open");
            *out_device = handle(checked(object(instance).device_open(*known), "device_open"));
          });
        },
    .device_close = [](void* /*self*/,
                       aa_device* device) noexcept { return destroy(reinterpret_cast<Device*>(device)); },
    .device_synchronize = [](void* /*self*/,
                             aa_device* device) noexcept { return guarded([&] { object(device).synchronize(); }); },
    .device_memory_info =
        [](void* /*self*/, aa_device* device, int64_t* out_free, int64_t* out_total) noexcept {
          return guarded([&] {
            int64_t free = 0;
            int64_t total = 0;
            object(device).memory_info(free, total);
            *out_free = free;
            *out_total = total;
          });
        },

    .device_native =
        [](void* /*self*/, aa_device* device, const char* what, void** out_handle) noexcept {
          return guarded([&] {
            void* native = object(device).native(what);
            if (!native)
              throw Failure(AA_NOT_FOUND, std::string("this driver has no native \"") + what + "\" of a device");
            *out_handle = native;
          });
        },

    .mem_alloc =
        [](void* /*self*/, aa_device* device, const aa_alloc* what, aa_allocation* out_allocation) noexcept {
          return guarded([&] {
            const Known<aa_alloc> known(what);
            check_flags(known->flags, 0, "mem_alloc");
            auto allocation = sized<aa_allocation>();
            allocation.kind = known->kind;
            allocation.size = known->size;
            object(device).mem_alloc(*known, allocation);
            write_sized(out_allocation, allocation);
          });
        },
    .mem_free =
        [](void* /*self*/, aa_device* device, const aa_allocation* what) noexcept {
          return guarded([&] { object(device).mem_free(*Known<aa_allocation>(what)); });
        },
    .mem_query =
        [](void* /*self*/, aa_instance* instance, const void* pointer, aa_memory_info* out_info) noexcept {
          return guarded([&] {
            auto info = sized<aa_memory_info>();
            if (!object(instance).mem_query(pointer, info)) {
              throw Failure(AA_NOT_FOUND, "memory that this driver did not allocate");
            }
            write_sized(out_info, info);
          });
        },
    .copy_async =
        [](void* /*self*/, aa_stream* stream, const aa_copy* what) noexcept {
          return guarded([&] {
            const Known<aa_copy> known(what);
            check_flags(known->flags, 0, "copy_async");
            if (known->direction < AA_COPY_HOST_TO_DEVICE || known->direction > AA_COPY_DEVICE_TO_DEVICE) {
              throw Failure(AA_INVALID_ARGUMENT,
                            "no copy direction has the number " + std::to_string(known->direction));
            }
            if (known->size > 0) object(stream).copy(*known);
          });
        },
    .fill_async =
        [](void* /*self*/, aa_stream* stream, const aa_fill* what) noexcept {
          return guarded([&] {
            const Known<aa_fill> known(what);
            check_flags(known->flags, 0, "fill_async");
            const uint32_t width = known->pattern_size;
            if (width != 1 && width != 2 && width != 4 && width != 8) {
              throw Failure(AA_INVALID_ARGUMENT, "a pattern has 1, 2, 4 or 8 bytes, not " + std::to_string(width));
            }
            if (known->size % width != 0) {
              throw Failure(
                  AA_INVALID_ARGUMENT,
                  std::to_string(known->size) + " bytes are not a multiple of the pattern's " + std::to_string(width));
            }
            if (known->size > 0) object(stream).fill(*known);
          });
        },

    .stream_create =
        [](void* /*self*/, aa_device* device, const aa_stream_params* params, aa_stream** out_stream) noexcept {
          return guarded([&] {
            const Known<aa_stream_params> known(params);
            check_flags(known->flags, AA_STREAM_NON_BLOCKING, "stream_create");
            *out_stream = handle(checked(object(device).stream_create(*known), "stream_create"));
          });
        },
    .stream_destroy = [](void* /*self*/,
                         aa_stream* stream) noexcept { return destroy(reinterpret_cast<Stream*>(stream)); },
    .stream_query = [](void* /*self*/, aa_stream* stream,
                       int32_t* out_done) noexcept { return guarded([&] { *out_done = object(stream).query(); }); },
    .stream_synchronize = [](void* /*self*/,
                             aa_stream* stream) noexcept { return guarded([&] { object(stream).synchronize(); }); },
    .stream_wait_event =
        [](void* /*self*/, aa_stream* stream, aa_event* event) noexcept {
          return guarded([&] { object(stream).wait_event(object(event)); });
        },
    .stream_native = [](void* /*self*/, aa_stream* stream,
                        void** out_handle) noexcept { return guarded([&] { *out_handle = object(stream).native(); }); },
    .stream_host_call = [](void* /*self*/, aa_stream* stream, void (*function)(void*),
                           void* user) noexcept { return guarded([&] { object(stream).host_call(function, user); }); },

    .event_create =
        [](void* /*self*/, aa_device* device, const aa_event_params* params, aa_event** out_event) noexcept {
          return guarded([&] {
            const Known<aa_event_params> known(params);
            check_flags(known->flags, AA_EVENT_TIMING | AA_EVENT_BLOCKING_SYNC, "event_create");
            *out_event = handle(checked(object(device).event_create(*known), "event_create"));
          });
        },
    .event_destroy = [](void* /*self*/, aa_event* event) noexcept { return destroy(reinterpret_cast<Event*>(event)); },
    .event_record = [](void* /*self*/, aa_event* event,
                       aa_stream* stream) noexcept { return guarded([&] { object(event).record(object(stream)); }); },
    .event_query = [](void* /*self*/, aa_event* event,
                      int32_t* out_done) noexcept { return guarded([&] { *out_done = object(event).query(); }); },
    .event_synchronize = [](void* /*self*/,
                            aa_event* event) noexcept { return guarded([&] { object(event).synchronize(); }); },
    .event_elapsed =
        [](void* /*self*/, aa_event* start, aa_event* end, double* out_milliseconds) noexcept {
          return guarded([&] { *out_milliseconds = object(start).elapsed(object(end)); });
        },

    .module_load =
        [](void* /*self*/, aa_device* device, const aa_module_params* params, aa_module** out_module) noexcept {
          return guarded([&] {
            const Known<aa_module_params> known(params);
            check_flags(known->flags, 0, "module_load");
            *out_module = handle(checked(object(device).module_load(*known), "module_load"));
          });
        },
    .module_unload = [](void* /*self*/,
                        aa_module* module) noexcept { return destroy(reinterpret_cast<Module*>(module)); },
    .kernel_get =
        [](void* /*self*/, aa_module* module, const char* name, aa_kernel** out_kernel,
           aa_kernel_info* out_info) noexcept {
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
        [](void* /*self*/, aa_stream* stream, aa_kernel* kernel, const aa_launch* launch) noexcept {
          return guarded([&] {
            const Known<aa_launch> known(launch);
            check_flags(known->flags, AA_LAUNCH_INDIRECT, "kernel_launch");
            object(stream).launch(object(kernel), *known);
          });
        },
};

}  // namespace detail

template <class DriverType>
const aa_driver* driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) noexcept {
  static_assert(DriverType::facts.name != nullptr, "the driver class must give its name in `facts`");
  // A host of the same major version can also read a newer table (members are only appended); an older one only if it
  // says so.
  const bool common = AA_ABI_CURRENT >= host_abi_min && AA_ABI_MAJOR <= (host_abi_max >> 16);
  if (!common || !host || !AA_HAS_MEMBER(host, aa_host, reclaim)) return nullptr;
  detail::host_pointer.store(host, std::memory_order_release);
  return &detail::Emitted<DriverType>::table;
}

inline void log(aa_log_level level, const std::string& message) noexcept {
  if (const aa_host* host = detail::host_pointer.load(std::memory_order_acquire)) {
    host->log(host, level, message.data(), message.size());
  }
}

inline Scratch::Scratch(aa_host_stream* stream, size_t size) {
  scratch_.stream = stream;
  acquire(size);
}

inline Scratch::Scratch(aa_host_device* device, size_t size) {
  scratch_.flags = AA_SCRATCH_IDLE;
  scratch_.device = device;
  acquire(size);
}

inline void Scratch::acquire(size_t size) {
  const aa_host* host = detail::host_pointer.load(std::memory_order_acquire);
  scratch_.struct_size = sizeof(scratch_);
  scratch_.size = size;
  if (aa_status* status = host->scratch_acquire(host, &scratch_)) {
    const Failure failure(static_cast<aa_code>(host->status_code(host, status)), host->status_message(host, status),
                          host->status_native_code(host, status));
    host->status_release(host, status);
    throw failure;
  }
}

inline Scratch::~Scratch() {
  const aa_host* host = detail::host_pointer.load(std::memory_order_acquire);
  host->scratch_release(host, &scratch_);
}

}  // namespace anyaccel::abi
