// Implements device.h: the instance and the devices of the reference driver.
#include "device.h"

#include <algorithm>
#include <string>
#include <thread>

#include "mutations.h"
#include "ops.h"

namespace reference {

Device::Device(Machine& machine, int32_t index, const Abilities& abilities, aa_host_device* host)
    : machine_(machine),
      index_(index),
      abilities_(abilities),
      host_(host),
      memory_(total_memory, index),
      spare_(spare_memory, index) {
  const std::lock_guard lock(machine_.mutex);
  machine_.opened.push_back(this);
}

Device::~Device() {
  const std::lock_guard lock(machine_.mutex);
  std::erase(machine_.opened, this);
}

void Device::close() {
  if (mutated(Mutation::closing_a_device_fails)) throw abi::Failure(AA_INTERNAL, "it stays open");
  if (mutated(Mutation::closing_a_device_wipes_the_others)) {
    const std::lock_guard lock(machine_.mutex);
    for (Device* other : machine_.opened) {
      if (other != this) other->memory_.wipe();
    }
  }
}

void* Device::native(const char* what) {
  return std::string(what) == "device" || mutated(Mutation::unknown_handles_are_given) ? this : nullptr;
}

std::vector<std::shared_ptr<Queue>> Device::queues() {
  const std::lock_guard lock(mutex_);
  return queues_;
}

void Device::synchronize() {
  if (mutated(Mutation::device_synchronize_does_nothing)) return;
  if (mutated(Mutation::device_synchronize_waits_on_the_first_device_only) && index_ > 0) return;
  std::optional<abi::Failure> failed;
  std::vector<std::shared_ptr<Queue>> waited = queues();
  if (mutated(Mutation::device_synchronize_waits_for_one_stream) && !waited.empty()) waited.resize(1);
  if (mutated(Mutation::device_synchronize_waits_for_all_devices)) {
    const std::lock_guard lock(machine_.mutex);
    for (Device* other : machine_.opened) {
      if (other == this) continue;
      for (auto& queue : other->queues()) waited.push_back(queue);
    }
  }
  for (const auto& queue : waited) {
    if (queue->lazy() && !mutated(Mutation::device_synchronize_releases_nothing)) queue->release();
  }
  for (const auto& queue : waited) {
    queue->wait();
    if (!failed) failed = queue->failure();
    if (failed && mutated(Mutation::device_synchronize_ends_at_a_failure)) break;
  }
  if (failed && !mutated(Mutation::device_synchronize_hides_failures)) throw *failed;
}

void Device::memory_info(int64_t& free, int64_t& total) {
  needs_more_than_copies("device_memory_info");
  total = memory_.total();
  free = mutated(Mutation::free_memory_never_moves) ? total : memory_.available();
  if (mutated(Mutation::free_memory_is_the_first_devices)) {
    const std::lock_guard lock(machine_.mutex);
    free = machine_.opened.front()->memory_.available();
  }
  if (mutated(Mutation::free_memory_is_kilobytes)) {
    free /= 1024;
    total /= 1024;
  }
  if (mutated(Mutation::free_memory_is_used_memory)) free = total - free;
  if (mutated(Mutation::free_memory_exceeds_the_total)) free = total + 1;
  if (mutated(Mutation::total_memory_is_twice_as_much)) total *= 2;
}

void Device::mem_alloc(const aa_alloc& what, aa_allocation& out) {
  static const std::thread::id first_thread = std::this_thread::get_id();
  if (mutated(Mutation::new_threads_use_the_first_device) && std::this_thread::get_id() != first_thread) {
    const std::lock_guard lock(machine_.mutex);
    out.pointer = machine_.opened.front()->allocate(what.kind, what.size);
    return;
  }
  out.pointer = allocate(what.kind, what.size);
  if (mutated(Mutation::allocations_say_another_size)) out.size = what.size + 1;
}

void* Device::allocate(int32_t kind, size_t size) {
  if (kind == AA_MEMORY_DEVICE) return memory_.allocate(size);
  if (kind == AA_MEMORY_PINNED && abilities_.more_than_copies) return machine_.pinned.allocate(size);
  if (kind == spare_kind && abilities_.more_than_copies)
    return mutated(Mutation::spare_memory_is_the_devices) ? memory_.allocate(size) : spare_.allocate(size);
  if (mutated(Mutation::unknown_kinds_are_device_memory)) return memory_.allocate(size);
  if (mutated(Mutation::managed_memory_is_not_promised) && kind == AA_MEMORY_MANAGED) {
    return machine_.pinned.allocate(size);
  }
  if (mutated(Mutation::unknown_kinds_are_internal_errors)) throw abi::Failure(AA_INTERNAL, "what is that?");
  if (mutated(Mutation::errors_have_no_message)) throw abi::Failure(AA_UNIMPLEMENTED, "");
  if (mutated(Mutation::errors_leak)) new std::string(std::string(300, 'x'));
  throw abi::Failure(AA_UNIMPLEMENTED, "there is no memory of kind " + std::to_string(kind));
}

void Device::mem_free(const aa_allocation& what) {
  const int32_t kind = what.kind;
  if (kind == AA_MEMORY_PINNED || (kind == AA_MEMORY_MANAGED && mutated(Mutation::managed_memory_is_not_promised))) {
    machine_.pinned.free(what.pointer);
  } else if (kind == spare_kind && !mutated(Mutation::spare_memory_is_the_devices)) {
    if (!mutated(Mutation::spare_memory_leaks)) spare_.free(what.pointer, what.size);
  } else {
    memory_.free(what.pointer, what.size);
  }
}

std::unique_ptr<abi::Stream> Device::stream_create(const aa_stream_params& params) {
  const int32_t priority = params.priority;
  if (mutated(Mutation::streams_need_a_known_priority) && (priority < -10 || priority > 10)) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "no such priority");
  }
  if (mutated(Mutation::default_streams_are_refused) && params.flags == AA_STREAM_DEFAULT) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "no such flag");
  }
  auto stream = std::make_unique<Stream>(*this, abilities_.lazy, params.host_stream);
  if (mutated(Mutation::device_synchronize_forgets_low_priorities) && priority > 0) remove(stream->queue());
  return stream;
}

std::unique_ptr<abi::Event> Device::event_create(const aa_event_params& params) {
  needs_more_than_copies("event_create");
  return std::make_unique<Event>(*this, params.flags);
}

bool Device::supports_op(const aa_op_call& call) {
  return !mutated(Mutation::ops_that_are_found_take_no_call) && supports(call);
}

bool Device::can_copy_from(abi::Device& /*source*/) {
  static bool answer = false;
  if (mutated(Mutation::direct_copies_change_their_answer)) answer = !answer;
  return !mutated(Mutation::direct_copies_change_their_answer) || answer;
}

int32_t Device::memory_kind_count() { return mutated(Mutation::kinds_of_memory_are_promised) ? 2 : 1; }

void Device::memory_kind_info(int32_t index, aa_memory_kind_info& info) {
  if (index > 0) throw abi::Failure(AA_INTERNAL, "there is but one");
  info.kind = mutated(Mutation::spare_memory_has_a_fixed_number) ? AA_MEMORY_MANAGED : spare_kind;
  abi::copy_text(info.name, mutated(Mutation::spare_memory_has_no_name) ? "" : "spare");
  info.access = AA_ACCESS_KERNELS;
  if (mutated(Mutation::the_host_reaches_spare_memory)) info.access |= AA_ACCESS_HOST;
}

void Device::memory_kind_usage(int32_t kind, int64_t& free, int64_t& total) {
  if (kind != spare_kind && !mutated(Mutation::unknown_kinds_have_usage)) {
    throw abi::Failure(AA_NOT_FOUND, "there is no memory of kind " + std::to_string(kind));
  }
  total = spare_.total();
  free = mutated(Mutation::free_spare_memory_never_moves) ? total : spare_.available();
}

unsigned char* Device::view(const void* pointer, size_t size) const {
  if (unsigned char* const found = memory_.view(pointer, size)) return found;
  if (unsigned char* const found = spare_.view(pointer, size)) return found;
  void* base = nullptr;
  size_t bytes = 0;
  if (!machine_.pinned.find(pointer, base, bytes)) return nullptr;
  const auto offset = static_cast<size_t>(static_cast<const char*>(pointer) - static_cast<char*>(base));
  return size <= bytes - offset ? static_cast<unsigned char*>(base) + offset : nullptr;
}

std::shared_ptr<Queue> Device::queue_for_a_stream(bool lazy) {
  const std::lock_guard lock(mutex_);
  if (mutated(Mutation::streams_share_a_worker) && shared_queue_) return shared_queue_;
  auto queue = std::make_shared<Queue>(lazy || mutated(Mutation::work_waits_to_be_asked_for));
  queue->start();
  queues_.push_back(queue);
  shared_queue_ = queue;
  return queue;
}

void Device::remove(const std::shared_ptr<Queue>& queue) {
  if (mutated(Mutation::streams_share_a_worker)) return;
  const std::lock_guard lock(mutex_);
  std::erase(queues_, queue);
  if (shared_queue_ == queue) shared_queue_ = nullptr;
}

bool Device::owns(const std::shared_ptr<Queue>& queue) {
  const std::lock_guard lock(mutex_);
  return std::find(queues_.begin(), queues_.end(), queue) != queues_.end();
}

namespace {
std::shared_ptr<Record>& kept_record() {
  static auto& kept = *new std::shared_ptr<Record>;
  return kept;
}
}  // namespace

void Device::forget(std::shared_ptr<Record> record) { kept_record() = std::move(record); }
std::shared_ptr<Record> Device::forgotten_record() { return kept_record(); }

void Device::all_wait_for(const std::shared_ptr<Record>& record) {
  for (const auto& queue : queues()) {
    if (queue != record->queue.lock()) queue->add({[] {}, nullptr, record, false, {}});
  }
}

std::shared_ptr<std::vector<Item>> Device::shared_capture() {
  const std::lock_guard lock(mutex_);
  if (!shared_capture_) shared_capture_ = std::make_shared<std::vector<Item>>();
  return shared_capture_;
}

void Device::hold() {
  for (const auto& queue : queues()) {
    queue->add({[] {
                  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
                },
                nullptr,
                nullptr,
                false,
                {}});
  }
}

}  // namespace reference
