// The one accelerator of the process. Detection itself is in detection.cpp.
#include "anyaccel/accelerator.h"

#include <atomic>
#include <mutex>

#include "anyaccel/error.h"
#include "runtime/detection_state.h"

namespace anyaccel {
namespace {

std::atomic<Accelerator*> current{nullptr};
std::mutex change_mutex;

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
  delete current.exchange(accelerator.release());
}

void reset_accelerator() {
  std::lock_guard lock(change_mutex);
  delete current.exchange(nullptr);
  forget_detection();
}

bool is_current_accelerator_supported() {
  const std::string name = get_accelerator()->name();
  for (const std::string& known : known_accelerators()) {
    if (known == name || known == name + ".external") return true;
  }
  return false;
}

Tensor Accelerator::tensor_of(std::span<const double> values, DType dtype) {
  const Shape shape{static_cast<int64_t>(values.size())};
  Tensor on_host = Tensor::from_host(values.data(), shape, DType::F64);
  return on_host.to(dtype).to(device());
}

}  // namespace anyaccel
