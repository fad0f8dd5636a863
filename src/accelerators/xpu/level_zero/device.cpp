// Implements device.h: an opened device.
#include "accelerators/xpu/level_zero/device.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>

#include "accelerators/xpu/level_zero/module.h"
#include "accelerators/xpu/level_zero/spirv_compiler.h"

namespace anyaccel::xpu::level_zero {

// Work of a stream that has failed has ended too when this returns or throws, so that its memory can be freed.
void Device::synchronize() {
  state_->usable();
  std::optional<abi::Failure> first;
  for (const std::shared_ptr<Record>& end : streams_->ends_of_work()) {
    try {
      end->wait();
    } catch (const abi::Failure& failure) {
      end->settle();
      if (!first) first = failure;
    }
  }
  if (first) throw abi::Failure(*first);
}

void Device::memory_info(int64_t& free, int64_t& total) {
  state_->usable();
  const uint64_t have = state_->facts().total_memory;
  total = static_cast<int64_t>(have);
  free = static_cast<int64_t>(have - std::min(have, allocated_.load()));
}

void Device::mem_alloc(const aa_alloc& what, aa_allocation& out) {
  const int32_t kind = what.kind;
  const size_t size = what.size;
  state_->usable();
  const Api& api = state_->api();
  const DeviceFacts& facts = state_->facts();
  ContextHandle context = state_->context().handle();
  DeviceMemoryDesc device_desc{};
  device_desc.type = type_device_memory_desc;
  HostMemoryDesc host_desc{};
  host_desc.type = type_host_memory_desc;
  void* pointer = nullptr;
  Result result = success;
  const char* call = "";
  if (kind == AA_MEMORY_DEVICE) {
    call = "zeMemAllocDevice";
    result = api.zeMemAllocDevice(context, &device_desc, size, memory_alignment, state_->handle(), &pointer);
  } else if (kind == AA_MEMORY_PINNED && (facts.access.host & memory_access_rw)) {
    call = "zeMemAllocHost";
    result = api.zeMemAllocHost(context, &host_desc, size, memory_alignment, &pointer);
  } else if (kind == AA_MEMORY_MANAGED && (facts.access.shared_single_device & memory_access_rw)) {
    call = "zeMemAllocShared";
    result =
        api.zeMemAllocShared(context, &device_desc, &host_desc, size, memory_alignment, state_->handle(), &pointer);
  } else {
    throw abi::Failure(AA_UNIMPLEMENTED,
                       std::string(facts.properties.name) + " has no memory of kind " + std::to_string(kind));
  }
  if (result == error_out_of_device_memory || result == error_out_of_host_memory || result == error_unsupported_size) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED,
                       std::string(call) + ": " + result_text(result) + ": " + std::to_string(size) +
                           " bytes were asked for; " + std::to_string(allocated_.load()) + " of the " +
                           std::to_string(facts.total_memory) + " bytes of xpu:" + std::to_string(state_->index()) +
                           " (" + facts.properties.name + ") are held by this process, and one allocation may have " +
                           std::to_string(facts.properties.max_allocation),
                       result);
  }
  state_->check(result, call);
  if (kind == AA_MEMORY_DEVICE) allocated_ += size;
  out.pointer = pointer;
}

void Device::mem_free(const aa_allocation& what) {
  if (is_forked_child()) state_->usable();
  const Result result = state_->api().zeMemFree(state_->context().handle(), what.pointer);
  if (what.kind == AA_MEMORY_DEVICE && (result == success || state_->lost())) allocated_ -= what.size;
  state_->check(result, "zeMemFree");
}

std::unique_ptr<abi::Stream> Device::stream_create(const aa_stream_params& params) {
  state_->usable();
  QueueDesc desc{};
  desc.type = type_queue_desc;
  desc.ordinal = state_->facts().queue_ordinal;
  desc.index = next_queue_++ % state_->facts().queue_count;
  desc.mode = queue_asynchronous;
  desc.priority = params.priority < 0 ? priority_high : params.priority > 0 ? priority_low : priority_normal;
  return std::make_unique<Stream>(state_, streams_, desc);
}

std::unique_ptr<abi::Event> Device::event_create(const aa_event_params& params) {
  state_->usable();
  return std::make_unique<Event>((params.flags & AA_EVENT_TIMING) != 0);
}

std::unique_ptr<abi::Module> Device::module_load(const aa_module_params& params) {
  const void* const image = params.image;
  const size_t size = params.size;
  const char* const format = params.format;
  state_->usable();
  if (std::string_view(format) != spirv_format) {
    throw abi::Failure(AA_UNIMPLEMENTED, std::string("modules of format \"") + format +
                                             "\" cannot be loaded; the Level Zero runtime takes \"" + spirv_format +
                                             "\"");
  }
  // Drivers handle other bytes differently; some read past the end.
  constexpr size_t header_size = 20;
  if (size < header_size || size % 4 != 0 || !is_spirv(image)) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "the module of " + std::to_string(size) +
                                                " bytes is not SPIR-V: its first word is not 0x07230203, or it is not "
                                                "whole number of words");
  }
  return std::make_unique<Module>(state_, image, size);
}

// ---- compiler --------------------------------------------------------------------------------------------------------

const char* Device::compile_languages() { return opencl_language; }

std::string Device::compile_fingerprint() { return spirv_fingerprint(); }

abi::CompileOutput Device::compile(const aa_compile& what) {
  if (std::string_view(what.language) != opencl_language) {
    throw abi::Failure(AA_UNIMPLEMENTED,
                       std::string("the Level Zero runtime compiles ") + opencl_language + ", not " + what.language);
  }
  return compile_to_spirv(what.name, {what.source, what.source_size}, {what.options, what.options + what.option_count});
}

bool Device::can_copy_from(abi::Device& source) {
  const Api& api = state_->api();
  const DeviceHandle other = static_cast<Device&>(source).state().handle();
  if (!api.zeDeviceCanAccessPeer) return false;
  uint8_t there = 0, back = 0;
  return api.zeDeviceCanAccessPeer(state_->handle(), other, &there) == success && there != 0 &&
         api.zeDeviceCanAccessPeer(other, state_->handle(), &back) == success && back != 0;
}

void Device::kernel_tuning(aa_kernel_tuning& tuning) {
  const ComputeProperties& compute = state_->facts().compute;
  const auto power_of_two = [](uint32_t most) { return static_cast<int32_t>(std::bit_floor(std::max(most, 1u))); };
  uint32_t subgroup = 0;
  for (uint32_t i = 0; i < std::min(compute.subgroup_size_count, 8u); ++i) {
    const uint32_t size = compute.subgroup_sizes[i];
    if (size <= 32 && subgroup != 16 && (size == 16 || size > subgroup)) subgroup = size;
  }
  tuning.group_size = power_of_two(std::min(compute.max_group_size, 128u));
  if (std::has_single_bit(subgroup) && static_cast<int32_t>(subgroup) <= tuning.group_size) {
    tuning.subgroup_size = static_cast<int32_t>(subgroup);
  }
  tuning.lanes = tuning.subgroup_size ? tuning.subgroup_size : std::min(tuning.group_size, 16);
  tuning.items = power_of_two(std::min(compute.max_group_size, 256u));
  tuning.local_memory = static_cast<int32_t>(compute.max_local_memory);
  tuning.native_f16 = (state_->facts().module.flags & module_fp16) != 0;
  tuning.native_f64 = (state_->facts().module.flags & module_fp64) != 0;
}

}  // namespace anyaccel::xpu::level_zero
