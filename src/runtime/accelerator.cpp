// The one accelerator of the process. Detection itself is in detection.cpp.
#include "anyaccel/accelerator.h"

#include <atomic>
#include <charconv>
#include <mutex>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "runtime/detection_state.h"

namespace anyaccel {
namespace {

std::atomic<Accelerator*> current{nullptr};
std::mutex change_mutex;

// Accelerators that were current at some time. Nobody can tell who still holds a pointer to one, so they are kept;
// objects of the program with static lifetime may use theirs, so not even the list is destroyed at exit.
std::vector<std::unique_ptr<Accelerator>>& earlier() {
  static auto* list = new std::vector<std::unique_ptr<Accelerator>>;
  return *list;
}

// Called under the mutex.
void replace_by(Accelerator* next) {
  earlier().reserve(earlier().size() + 1);
  Accelerator* previous = current.exchange(next);
  if (!previous) return;
  earlier().emplace_back(previous);
  if (auto* driven = dynamic_cast<DriverAccelerator*>(previous)) driven->release_cached_memory();
}

Accelerator* detect() {
  std::lock_guard lock(change_mutex);
  if (Accelerator* found = current.load(std::memory_order_acquire)) return found;
  // Never destroyed at exit: objects of the program with static lifetime may still hold tensors then.
  Accelerator* found = detect_accelerator().release();
  current.store(found, std::memory_order_release);
  return found;
}

}  // namespace

Accelerator* get_accelerator() {
  if (Accelerator* found = current.load(std::memory_order_acquire)) [[likely]]
    return found;
  return detect();
}

void set_accelerator(std::unique_ptr<Accelerator> accelerator) {
  if (!accelerator) throw InvalidArgument("set_accelerator: the pointer is null; use reset_accelerator() to forget it");
  std::lock_guard lock(change_mutex);
  note_set_accelerator(accelerator->name());
  replace_by(accelerator.release());
}

void reset_accelerator() {
  std::lock_guard lock(change_mutex);
  replace_by(nullptr);
  forget_detection();
}

void shutdown_accelerators() {
  std::lock_guard lock(change_mutex);
  const auto check = [](const Accelerator* accelerator) {
    const auto* driven = dynamic_cast<const DriverAccelerator*>(accelerator);
    const int64_t living = driven ? driven->living_objects() : 0;
    if (living == 0) return;
    throw InvalidArgument("shutdown_accelerators: " + std::to_string(living) + (living == 1 ? " object" : " objects") +
                              " of accelerator \"" + accelerator->name() +
                              "\" (memory of tensors, streams, events, graphs) " + (living == 1 ? "is" : "are") +
                              " still in use; let go of them first",
                          AA_FAILED_PRECONDITION);
  };
  for (const auto& accelerator : earlier()) check(accelerator.get());
  check(current.load());
  delete current.exchange(nullptr);
  earlier().clear();
  forget_detection();
}

bool is_current_accelerator_supported() {
  const std::string name = get_accelerator()->name();
  for (const std::string& known : known_accelerators()) {
    if (known == name || known == name + ".external") return true;
  }
  return false;
}

// "sm_90": all digits but the last are the major version.
std::pair<int, int> Accelerator::compute_capability(int index) const {
  const std::string_view arch = device_properties(index).arch;
  const size_t line = arch.find('_');
  const std::string_view digits = line == std::string_view::npos ? std::string_view() : arch.substr(line + 1);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || number < 10) return {0, 0};
  return {number / 10, number % 10};
}

bool Accelerator::is_current_stream_capturing(int /*index*/) { return false; }
void Accelerator::flush(int /*index*/) {}
Tensor Accelerator::pack_weight(const aa_op_call& /*example*/, uint32_t /*tensor*/, const Tensor& weight) {
  return weight;
}

std::vector<MemoryKind> Accelerator::memory_kinds(int /*index*/) { return {}; }

Tensor Accelerator::empty_in(std::string_view memory_kind, const Shape& /*shape*/, DType /*dtype*/, int index) {
  std::string known;
  for (const MemoryKind& kind : memory_kinds(index)) known += (known.empty() ? "" : ", ") + kind.name;
  throw InvalidArgument(device_name(index) + " has no memory called \"" + std::string(memory_kind) + "\"; it has " +
                        (known.empty() ? "its ordinary memory only: use Tensor::empty" : known));
}

bool Accelerator::copy_between(void* /*destination*/, int /*to*/, const void* /*source*/, int /*from*/,
                               size_t /*bytes*/) {
  return false;
}

ScopeGuard Accelerator::step(uint64_t /*key*/) { return {}; }

std::pair<int64_t, int64_t> Accelerator::mem_get_info(int index) {
  return {available_memory(index), total_memory(index)};
}

Tensor Accelerator::pin_empty(const Shape& shape, DType dtype) {
  // pin_memory() takes shape and dtype from a tensor and does not look at its memory.
  static char nothing = 0;
  return pin_memory(Tensor::from_blob(&nothing, shape, dtype, nullptr), /*make_copy=*/false);
}

Tensor Accelerator::pin_empty_like(const Tensor& tensor, DType dtype) {
  if (!tensor) throw InvalidArgument("pin_empty_like: the tensor is empty");
  return pin_empty(tensor.shape(), dtype == DType::None ? tensor.dtype() : dtype);
}

bool Accelerator::unpin_memory(const Tensor& tensor) {
  if (!tensor) throw InvalidArgument("unpin_memory: the tensor is empty");
  return tensor.storage()->unpin();
}

bool Accelerator::register_host_memory(void* /*address*/, size_t /*bytes*/) { return false; }
void Accelerator::unregister_host_memory(void* /*address*/) {}

Tensor Accelerator::tensor_of(std::span<const double> values, DType dtype) {
  const Shape shape{static_cast<int64_t>(values.size())};
  Tensor on_host = Tensor::from_host(values.data(), shape, DType::F64);
  return on_host.to(dtype).to(device());
}

}  // namespace anyaccel
