// The memories layer: ranges of memory by address.
#include "runtime/layers/memories.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "anyaccel/abi/files.h"
#include "anyaccel/abi/ops.h"
#include "runtime/layers/layer_tables.h"

namespace anyaccel::layers {
namespace {

struct Memories {
  struct Range {
    size_t size;
    aa_memory* memory;
  };
  using Ranges = std::map<uintptr_t, Range>;  // by the first byte

  struct State {
    mutable std::shared_mutex mutex;
    std::map<const aa_device*, Ranges> devices;
    std::map<const aa_stream*, const aa_device*> streams;
    std::map<const aa_file*, const aa_device*> files;

    // With `mutex` held.
    aa_memory* find(const Ranges& ranges, const void* pointer) const {
      const auto address = reinterpret_cast<uintptr_t>(pointer);
      auto after = ranges.upper_bound(address);
      if (!pointer || after == ranges.begin()) return nullptr;
      const auto& [begin, range] = *--after;
      return address - begin < range.size ? range.memory : nullptr;
    }
    const Ranges& of(const aa_device* device) const {
      static const Ranges none;
      const auto found = devices.find(device);
      return found == devices.end() ? none : found->second;
    }
    const Ranges& of(const aa_stream* stream) const {
      static const Ranges none;
      const auto found = streams.find(stream);
      return found == streams.end() ? none : of(found->second);
    }
    const Ranges& of(const aa_file* file) const {
      static const Ranges none;
      const auto found = files.find(file);
      return found == files.end() ? none : of(found->second);
    }
  };
  using Layer = LayerState<Memories>;

  static void add(Layer& layer, const aa_device* device, const void* pointer, size_t size, aa_memory* memory) {
    const std::unique_lock lock(layer.state.mutex);
    layer.state.devices[device][reinterpret_cast<uintptr_t>(pointer)] = {size, memory};
  }
  static void remove(Layer& layer, const aa_device* device, const void* pointer) {
    const std::unique_lock lock(layer.state.mutex);
    layer.state.devices[device].erase(reinterpret_cast<uintptr_t>(pointer));
  }

  // One specialization for each function that records memory or has a member to fill in.
  template <auto Member>
  struct Is {};

  static aa_status* run(Is<&aa_driver::mem_alloc>, Layer& layer, aa_device* device, const aa_alloc* what,
                        aa_allocation* out) {
    aa_status* status = layer.next<&aa_driver::mem_alloc>(device, what, out);
    if (!status) add(layer, device, out->pointer, std::max(what->size, out->size), out->memory);
    return status;
  }
  static aa_status* run(Is<&aa_driver::mem_free>, Layer& layer, aa_device* device, const aa_allocation* what) {
    aa_allocation filled = *what;
    {
      const std::shared_lock lock(layer.state.mutex);
      filled.memory = layer.state.find(layer.state.of(device), what->pointer);
    }
    // The range is removed before it is freed: afterwards another thread may receive the same address.
    remove(layer, device, what->pointer);
    return layer.next<&aa_driver::mem_free>(device, static_cast<const aa_allocation*>(&filled));
  }
  static aa_status* run(Is<&aa_host_memory_table::register_range>, Layer& layer, aa_device* device,
                        const aa_register* what, aa_registration* out) {
    aa_status* status = layer.next<&aa_host_memory_table::register_range>(device, what, out);
    if (!status) add(layer, device, what->pointer, what->size, out->memory);
    return status;
  }
  static aa_status* run(Is<&aa_host_memory_table::unregister_range>, Layer& layer, aa_device* device, void* pointer) {
    aa_status* status = layer.next<&aa_host_memory_table::unregister_range>(device, pointer);
    if (!status) remove(layer, device, pointer);
    return status;
  }
  static aa_status* run(Is<&aa_driver::stream_create>, Layer& layer, aa_device* device, const aa_stream_params* params,
                        aa_stream** out) {
    aa_status* status = layer.next<&aa_driver::stream_create>(device, params, out);
    if (!status) {
      const std::unique_lock lock(layer.state.mutex);
      layer.state.streams[*out] = device;
    }
    return status;
  }
  static aa_status* run(Is<&aa_driver::stream_destroy>, Layer& layer, aa_stream* stream) {
    {
      const std::unique_lock lock(layer.state.mutex);
      layer.state.streams.erase(stream);
    }
    return layer.next<&aa_driver::stream_destroy>(stream);
  }
  static aa_status* run(Is<&aa_driver::device_close>, Layer& layer, aa_device* device) {
    {
      const std::unique_lock lock(layer.state.mutex);
      layer.state.devices.erase(device);
    }
    return layer.next<&aa_driver::device_close>(device);
  }
  static aa_status* run(Is<&aa_driver::copy_async>, Layer& layer, aa_stream* stream, const aa_copy* what) {
    aa_copy filled = *what;
    {
      const std::shared_lock lock(layer.state.mutex);
      const Ranges& ranges = layer.state.of(stream);
      filled.destination_memory = layer.state.find(ranges, what->destination);
      filled.source_memory = layer.state.find(ranges, what->source);
    }
    return layer.next<&aa_driver::copy_async>(stream, static_cast<const aa_copy*>(&filled));
  }
  static aa_status* run(Is<&aa_peer_table::copy_async>, Layer& layer, aa_stream* stream, const aa_peer_copy* what) {
    aa_peer_copy filled = *what;
    {
      const std::shared_lock lock(layer.state.mutex);
      filled.destination_memory = layer.state.find(layer.state.of(what->destination_device), what->destination);
      filled.source_memory = layer.state.find(layer.state.of(what->source_device), what->source);
    }
    return layer.next<&aa_peer_table::copy_async>(stream, static_cast<const aa_peer_copy*>(&filled));
  }
  static aa_status* run(Is<&aa_files_table::memory_register>, Layer& layer, aa_device* device,
                        const aa_file_memory* what) {
    aa_file_memory filled = *what;
    {
      const std::shared_lock lock(layer.state.mutex);
      filled.memory = layer.state.find(layer.state.of(device), what->pointer);
    }
    return layer.next<&aa_files_table::memory_register>(device, static_cast<const aa_file_memory*>(&filled));
  }
  static aa_status* run(Is<&aa_files_table::file_open>, Layer& layer, aa_device* device, const aa_file_params* params,
                        aa_file** out) {
    aa_status* status = layer.next<&aa_files_table::file_open>(device, params, out);
    if (!status) {
      const std::unique_lock lock(layer.state.mutex);
      layer.state.files[*out] = device;
    }
    return status;
  }
  static aa_status* run(Is<&aa_files_table::file_close>, Layer& layer, aa_file* file) {
    {
      const std::unique_lock lock(layer.state.mutex);
      layer.state.files.erase(file);
    }
    return layer.next<&aa_files_table::file_close>(file);
  }
  static aa_status* run(Is<&aa_files_table::read>, Layer& layer, aa_file* file, const aa_file_transfer* what,
                        size_t* out_bytes) {
    const aa_file_transfer filled = with_memory(layer.state, file, *what);
    return layer.next<&aa_files_table::read>(file, &filled, out_bytes);
  }
  static aa_status* run(Is<&aa_files_table::write>, Layer& layer, aa_file* file, const aa_file_transfer* what,
                        size_t* out_bytes) {
    const aa_file_transfer filled = with_memory(layer.state, file, *what);
    return layer.next<&aa_files_table::write>(file, &filled, out_bytes);
  }
  static aa_file_transfer with_memory(const State& state, const aa_file* file, const aa_file_transfer& what) {
    aa_file_transfer filled = what;
    const std::shared_lock lock(state.mutex);
    filled.memory = state.find(state.of(file), what.pointer);
    return filled;
  }
  static aa_status* run(Is<&aa_driver::fill_async>, Layer& layer, aa_stream* stream, const aa_fill* what) {
    aa_fill filled = *what;
    {
      const std::shared_lock lock(layer.state.mutex);
      filled.memory = layer.state.find(layer.state.of(stream), what->destination);
    }
    return layer.next<&aa_driver::fill_async>(stream, static_cast<const aa_fill*>(&filled));
  }
  static aa_status* run(Is<&aa_driver::kernel_launch>, Layer& layer, aa_stream* stream, aa_kernel* kernel,
                        const aa_launch* launch) {
    aa_launch filled = *launch;
    std::vector<aa_memory*> memories(launch->argument_count);
    {
      const std::shared_lock lock(layer.state.mutex);
      const Ranges& ranges = layer.state.of(stream);
      for (uint32_t i = 0; i < launch->argument_count; ++i) {
        if (launch->argument_kinds[i] != AA_ARGUMENT_POINTER) continue;
        memories[i] = layer.state.find(ranges, *static_cast<void* const*>(launch->arguments[i]));
      }
    }
    filled.memories = memories.data();
    return layer.next<&aa_driver::kernel_launch>(stream, kernel, static_cast<const aa_launch*>(&filled));
  }
  static aa_status* run(Is<&aa_ops_table::supports>, Layer& layer, aa_device* device, const aa_op_call* call,
                        int32_t* out_supported) {
    std::array<aa_memory*, AA_OP_MAX_TENSORS> memories;
    const aa_op_call filled = with_memories(layer.state, device, *call, memories);
    return layer.next<&aa_ops_table::supports>(device, &filled, out_supported);
  }
  static aa_status* run(Is<&aa_ops_table::enqueue>, Layer& layer, aa_stream* stream, const aa_op_call* call,
                        int32_t* out_taken) {
    std::array<aa_memory*, AA_OP_MAX_TENSORS> memories;
    const aa_op_call filled = with_memories(layer.state, stream, *call, memories);
    return layer.next<&aa_ops_table::enqueue>(stream, &filled, out_taken);
  }
  static aa_status* run(Is<&aa_ops_table::pack>, Layer& layer, aa_stream* stream, const aa_pack* what,
                        const aa_tensor* weight, const aa_allocation* into, aa_packed** out_packed) {
    aa_allocation filled = *into;
    {
      const std::shared_lock lock(layer.state.mutex);
      filled.memory = layer.state.find(layer.state.of(stream), into->pointer);
    }
    return layer.next<&aa_ops_table::pack>(stream, what, weight, static_cast<const aa_allocation*>(&filled),
                                           out_packed);
  }
  template <class Place>
  static aa_op_call with_memories(const State& state, const Place* place, const aa_op_call& call,
                                  std::array<aa_memory*, AA_OP_MAX_TENSORS>& memories) {
    aa_op_call filled = call;
    const std::shared_lock lock(state.mutex);
    const Ranges& ranges = state.of(place);
    for (uint32_t i = 0; i < call.tensor_count && i < memories.size(); ++i) {
      memories[i] = state.find(ranges, call.tensors[i].data);
    }
    filled.memories = memories.data();
    return filled;
  }

  template <auto Member, class... Args>
  static aa_status* call(Layer& layer, Args... args) {
    if constexpr (std::is_same_v<TableOf<Member>, aa_driver>) {
      if constexpr (std::is_same_v<Is<Member>, Is<&aa_driver::query_extension>>) return layer.find_extension(args...);
    }
    if constexpr (requires { run(Is<Member>{}, layer, args...); }) {
      return run(Is<Member>{}, layer, args...);
    } else {
      return layer.next<Member>(args...);
    }
  }
};

}  // namespace

const abi::DriverCalls* wrap_memories(const abi::DriverCalls* table) { return wrap<Memories>(table); }

}  // namespace anyaccel::layers
