// Implements device.h: an opened device.
#include "accelerators/cuda/device.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "accelerators/cuda/ceilings.h"
#include "accelerators/cuda/compile/compiler.h"
#include "accelerators/cuda/event.h"
#include "accelerators/cuda/memory.h"
#include "accelerators/cuda/module.h"
#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {
namespace {

constexpr const char* cuda_language = "cuda-c++";

}  // namespace

Device::Device(const Platform& platform, int32_t index) : state_(platform, index), ops_(state_), file_memory_(state_) {}

void Device::close() {
  if (is_forked_child() || state_.lost()) return;
  // Not if several devices share the context, because another one may be capturing.
  if (state_.facts().shares > 1) return;
  state_.bind_surely();
  state_.check(state_.api().context_synchronize(), "cuCtxSynchronize");
}

// Stream by stream: the vendor refuses to wait for a whole context while one of its streams captures, and would end the
// capture. A capturing stream has no work to wait for.
void Device::synchronize() {
  state_.usable();
  for (const std::shared_ptr<StreamCore>& stream : state_.streams()) {
    const std::lock_guard lock(stream->waiting);
    if (stream->capturing.load(std::memory_order_acquire)) continue;
    const RelaxedCaptureMode relaxed(state_.api());
    state_.enqueue("cuStreamSynchronize", [&] { return state_.api().stream_synchronize(stream->handle); });
  }
}

void Device::memory_info(int64_t& free, int64_t& total) { state_.memory().info(free, total); }
void Device::mem_alloc(const aa_alloc& what, aa_allocation& out) {
  DeviceMemory& memory = state_.memory();
  out.pointer = what.kind == AA_MEMORY_PINNED && what.numa_node >= 0
                    ? memory.allocate_on_node(what.size, what.numa_node)
                    : memory.allocate(what.kind, what.size);
}
void Device::mem_free(const aa_allocation& what) { state_.memory().free(what.kind, what.pointer); }

std::unique_ptr<abi::Stream> Device::stream_create(const aa_stream_params& params) {
  return std::make_unique<Stream>(state_, &ops_, params);
}

std::unique_ptr<abi::Event> Device::event_create(const aa_event_params& params) {
  return std::make_unique<Event>(state_, params.flags);
}

std::unique_ptr<abi::Module> Device::module_load(const aa_module_params& params) {
  state_.usable();
  return std::make_unique<Module>(state_, params.image, params.size, params.format);
}

void Device::register_range(const aa_register& what, aa_registration& out) {
  state_.memory().register_range(what.pointer, what.size);
  out.device_address = state_.memory().device_address(what.pointer);
}
void* Device::native(const char* what) {
  if (std::string_view(what) != "context") return nullptr;
  state_.usable();
  return state_.context();
}
void Device::unregister_range(void* pointer) { state_.memory().unregister_range(pointer); }

bool Device::supports_op(const aa_op_call& call) {
  state_.bind();
  return ops_.supports(call.op, call);
}

bool Device::can_copy_from(abi::Device& source) { return state_.copies_from(static_cast<Device&>(source).state()); }

double Device::measure_ceiling(int32_t kind, size_t bytes, double seconds) {
  state_.bind_surely();
  return cuda::measure_ceiling(state_, kind, bytes, seconds);
}

// ---- compiler --------------------------------------------------------------------------------------------------------

const char* Device::compile_languages() { return cuda_language; }

std::string Device::compile_fingerprint() { return compiler_fingerprint(state_.facts()); }

abi::CompileOutput Device::compile(const aa_compile& what) {
  if (std::string_view(what.language) != cuda_language) {
    throw abi::Failure(AA_UNIMPLEMENTED, state_.label() + " compiles " + cuda_language + ", not " + what.language);
  }
  const std::vector<std::string> flags(what.options, what.options + what.option_count);
  return cuda::compile(state_.facts(), what.name, std::string(what.source, what.source_size), flags);
}

void Device::kernel_tuning(aa_kernel_tuning& tuning) {
  const DeviceFacts& facts = state_.facts();
  // One row takes a warp, and a group has several of them so that a multiprocessor has enough of both.
  tuning.group_size = std::min(256, facts.max_threads_per_block);
  tuning.lanes = facts.warp_size;
  tuning.subgroup_size = facts.warp_size;
  tuning.items = std::min(256, facts.max_threads_per_block);
  tuning.local_memory = std::min(49152, facts.shared_per_block);
  tuning.native_f16 = 1;  // compute capability 5.3, and every AMD device that ROCm runs on
  tuning.native_f64 = 1;
  if (state_.api().runtime == Runtime::cuda && facts.major * 10 + facts.minor < 53) tuning.native_f16 = 0;
}

}  // namespace anyaccel::cuda
