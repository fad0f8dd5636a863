// Implements device_state.h: the state that all objects of an opened device share.
#include "accelerators/cuda/device_state.h"

#include <algorithm>
#include <chrono>

#include "accelerators/cuda/memory.h"
#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {
namespace {

std::atomic<uint64_t> next_id{1};

// Results that a context returns forever once it has returned them: its work and its memory are lost.
bool kills_context(Result result) {
  switch (result) {
    case error_ecc_uncorrectable:
    case 220:  // CUDA_ERROR_NVLINK_UNCORRECTABLE
    case error_illegal_address:
    case error_launch_timeout:
    case error_context_is_destroyed:
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case error_misaligned_address:
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case error_launch_failed: return true;
    default: return code_of(result) == AA_DEVICE_LOST;
  }
}

// Memory for an op's counters and partial results is allocated in steps of this size, so that it seldom has to grow.
constexpr size_t scratch_step = size_t{64} << 10;

// Used instead of a stream for blocks of a destroyed graph.
constexpr uint64_t unused_capture = UINT64_MAX;

}  // namespace

DeviceState::DeviceState(const Platform& platform, int32_t index)
    : platform_(platform), api_(*platform.api), index_(index), id_(next_id.fetch_add(1)) {
  const auto start = std::chrono::steady_clock::now();
  const Result retained = api_.primary_context_retain(&context_, facts().ordinal);
  if (retained != success) refuse_open(retained);
  try {
    make_current();
    open_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check(api_.stream_priority_range(&least_priority_, &greatest_priority_), "cuCtxGetStreamPriorityRange");
    memory_ = std::make_unique<DeviceMemory>(*this);
  } catch (...) {
    bound_device = 0;
    api_.context_set_current(nullptr);
    api_.primary_context_release(facts().ordinal);
    throw;
  }
}

DeviceState::~DeviceState() {
  if (is_forked_child()) return;
  try {
    bind_surely();
    if (zeroing_stream_) api_.stream_destroy(zeroing_stream_);
  } catch (const abi::Failure&) {
    // A lost device's stream was destroyed with its context.
  }
  for (const ScratchBlock& block : scratch_) {
    try {
      memory_->free(AA_MEMORY_DEVICE, block.pointer);
    } catch (const abi::Failure&) {
      // The remaining ones must still be freed.
    }
  }
  memory_.reset();
  if (bound_device == id_) {
    bound_device = 0;
    api_.context_set_current(nullptr);
  }
  api_.primary_context_release(facts().ordinal);
}

std::string DeviceState::label() const { return "cuda:" + std::to_string(index_) + " (" + facts().name + ")"; }

int DeviceState::clamp_priority(int32_t wanted) const noexcept {
  return std::clamp<int>(wanted, std::min(greatest_priority_, least_priority_), least_priority_);
}

void DeviceState::refuse_open(Result result) const {
  std::string text = label() + " cannot be opened: cuDevicePrimaryCtxRetain gave " + result_text(api_, result);
  aa_code code = code_of(result);
  if (result == error_device_unavailable) {
    int mode = 0;
    api_.device_attribute(&mode, attribute_compute_mode, facts().ordinal);
    text +=
        mode == compute_mode_prohibited
            ? "; its compute mode is \"prohibited\": no process may use it until `nvidia-smi -c 0` has set it back"
            : "; another process holds it (compute mode \"exclusive process\", see `nvidia-smi -q -d COMPUTE`), or it "
              "is in trouble. End that process, take another device with CUDA_VISIBLE_DEVICES, or run "
              "`nvidia-smi -c 0`";
    code = AA_UNAVAILABLE;
  } else if (result == error_out_of_memory) {
    text +=
        "; its context itself needs some hundred MiB: other processes hold nearly all of its memory (see nvidia-smi)";
    code = AA_RESOURCE_EXHAUSTED;
  }
  throw abi::Failure(code, text, result);
}

// ---- the current context ---------------------------------------------------------------------------------------------

bool DeviceState::copies_from(const DeviceState& source) const {
  if (facts().ordinal == source.facts().ordinal) return true;
  if (!api_.has_peer) return false;
  int there = 0, back = 0;
  return api_.can_access_peer(&there, facts().ordinal, source.facts().ordinal) == success && there != 0 &&
         api_.can_access_peer(&back, source.facts().ordinal, facts().ordinal) == success && back != 0;
}

void DeviceState::make_current() const {
  bound_device = 0;
  check(api_.context_set_current(context_), "cuCtxSetCurrent");
  bound_device = id_;
}

void DeviceState::bind_surely() const {
  usable();
  ContextHandle current = nullptr;
  if (bound_device != id_ || api_.context_get_current(&current) != success || current != context_) make_current();
}

bool DeviceState::rebound(Result result) const {
  if (result != error_invalid_context && result != error_invalid_handle) return false;
  ContextHandle current = nullptr;
  if (api_.context_get_current(&current) == success && current == context_) return false;
  make_current();
  return true;
}

// ---- errors ----------------------------------------------------------------------------------------------------------

void DeviceState::fail(Result result, const char* call) const {
  std::string text = label() + ": " + call + " gave " + result_text(api_, result);
  if (kills_context(result)) {
    const std::lock_guard lock(lost_mutex_);
    if (lost()) refuse();
    lost_text_ =
        text +
        ". Work enqueued before may be what failed. The device's context is lost with all that is in its memory: "
        "close it, and start a new process to use it again";
    lost_native_ = result;
    lost_.store(true, std::memory_order_release);
    throw abi::Failure(code_of(result), lost_text_, result);
  }
  throw abi::Failure(code_of(result), text, result);
}

void DeviceState::refuse() const {
  if (is_forked_child()) {
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       label() +
                           " was opened before fork() and cannot be used in the child; start children with exec, or "
                           "before the accelerator is first used");
  }
  throw abi::Failure(AA_DEVICE_LOST, lost_text_, lost_native_);
}

// ---- scratch memory --------------------------------------------------------------------------------------------------

void* DeviceState::make_scratch(size_t bytes) {
  bind_surely();
  const RelaxedCaptureMode relaxed(api_);
  if (!zeroing_stream_) {
    check(api_.stream_create(&zeroing_stream_, stream_non_blocking, least_priority_), "cuStreamCreateWithPriority");
  }
  void* pointer = memory_->allocate(AA_MEMORY_DEVICE, bytes);
  // On a stream of its own and waited for: the caller's stream may capture, and a captured fill would run at every replay.
  Result result = api_.fill_8_async(reinterpret_cast<DevicePointer>(pointer), 0, bytes, zeroing_stream_);
  if (result == success) result = api_.stream_synchronize(zeroing_stream_);
  if (result != success) {
    memory_->free(AA_MEMORY_DEVICE, pointer);
    check(result, "cuMemsetD8Async");
  }
  return pointer;
}

void* DeviceState::scratch(Scratch purpose, StreamHandle stream, size_t bytes) {
  const std::lock_guard lock(scratch_mutex_);
  uint64_t capture = 0;
  for (const auto& [capturing, number] : captures_) {
    if (capturing == stream) capture = number;
  }
  for (auto block = scratch_.rbegin(); block != scratch_.rend(); ++block) {
    if (block->purpose == purpose && block->stream == stream && block->capture == capture && block->bytes >= bytes) {
      return block->pointer;
    }
  }
  for (ScratchBlock& block : scratch_) {
    const bool unused = capture != 0 ? block.capture == unused_capture : block.capture == 0 && !block.stream;
    if (unused && block.purpose == purpose && block.bytes >= bytes) {
      block.stream = stream;
      block.capture = capture;
      return block.pointer;
    }
  }
  const size_t rounded = (bytes + scratch_step - 1) / scratch_step * scratch_step;
  scratch_.reserve(scratch_.size() + 1);
  scratch_.push_back({purpose, stream, capture, make_scratch(rounded), rounded});
  return scratch_.back().pointer;
}

void DeviceState::set_capture(StreamHandle stream, uint64_t capture) {
  const std::lock_guard lock(scratch_mutex_);
  std::erase_if(captures_, [stream](const auto& entry) { return entry.first == stream; });
  if (capture != 0) captures_.emplace_back(stream, capture);
}

void DeviceState::release_stream(StreamHandle stream) noexcept {
  const std::lock_guard lock(scratch_mutex_);
  for (ScratchBlock& block : scratch_) {
    if (block.stream == stream && block.capture == 0) block.stream = nullptr;
  }
}

void DeviceState::release_capture(uint64_t capture) noexcept {
  const std::lock_guard lock(scratch_mutex_);
  for (ScratchBlock& block : scratch_) {
    if (block.capture == capture) block.capture = unused_capture;
  }
}

// ---- streams ---------------------------------------------------------------------------------------------------------

void DeviceState::add(const std::shared_ptr<StreamCore>& stream) {
  const std::lock_guard lock(streams_mutex_);
  std::erase_if(streams_, [](const auto& entry) { return entry.expired(); });
  streams_.push_back(stream);
}

std::vector<std::shared_ptr<StreamCore>> DeviceState::streams() {
  const std::lock_guard lock(streams_mutex_);
  std::vector<std::shared_ptr<StreamCore>> living;
  for (const auto& entry : streams_) {
    if (std::shared_ptr<StreamCore> stream = entry.lock()) living.push_back(std::move(stream));
  }
  return living;
}

}  // namespace anyaccel::cuda
