// A device of the reference driver: its memory and its streams.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "files.h"
#include "memory.h"
#include "stream.h"

namespace reference {

// All devices, opened or not: memory is found by address whoever asks.
struct Machine {
  static constexpr int32_t device_count = 2;

  std::mutex mutex;
  std::vector<Device*> opened;
  PinnedMemory pinned;
};

// The capabilities that the driver reports.
struct Abilities {
  bool lazy = false;  // holds work back
  bool host_calls = true;
  bool more_than_copies = true;  // than allocations, copies, and waiting for them
};

class Device final : public abi::Device {
 public:
  static constexpr size_t total_memory = size_t{1} << 30;
  // The kind of memory called "spare": as the device's own, but there is less of it.
  static constexpr int32_t spare_kind = AA_FIRST_NAMED_MEMORY_KIND;
  static constexpr size_t spare_memory = size_t{1} << 26;

  Device(Machine& machine, int32_t index, const Abilities& abilities, aa_host_device* host);
  ~Device() override;

  void close() override;
  void synchronize() override;
  void memory_info(int64_t& free, int64_t& total) override;
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override;
  void mem_free(const aa_allocation& what) override;
  void* native(const char* what) override;
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params& params) override;
  std::unique_ptr<abi::Event> event_create(const aa_event_params& params) override;
  bool supports_op(const aa_op_call& call) override;
  bool can_copy_from(abi::Device& source) override;
  int32_t memory_kind_count() override;
  void memory_kind_info(int32_t index, aa_memory_kind_info& info) override;
  void memory_kind_usage(int32_t kind, int64_t& free, int64_t& total) override;

  void files_info(aa_files_info& info) override { describe_files(info); }
  void file_memory_register(const aa_file_memory& what) override { file_memory_.add(what.pointer, what.size); }
  void file_memory_unregister(void* pointer) override { file_memory_.remove(pointer); }
  std::unique_ptr<abi::DirectFile> file_open(int descriptor) override { return open_file(*this, descriptor); }

  int32_t index() const noexcept { return index_; }
  aa_host_device* host() const noexcept { return host_; }
  const Abilities& abilities() const noexcept { return abilities_; }
  // Throws AA_UNIMPLEMENTED where the driver only copies.
  void needs_more_than_copies(const char* function) const {
    if (!abilities_.more_than_copies) abi::unimplemented(function);
  }
  // Returns where a worker finds memory of this device, or pinned memory; null where there is none.
  unsigned char* view(const void* pointer, size_t size) const;
  const DeviceMemory& memory() const noexcept { return memory_; }
  const DeviceMemory& spare() const noexcept { return spare_; }
  PinnedMemory& pinned() const noexcept { return machine_.pinned; }

  std::shared_ptr<Queue> queue_for_a_stream(bool lazy);
  void remove(const std::shared_ptr<Queue>& queue);
  bool owns(const std::shared_ptr<Queue>& queue);

  // State that mutations need: see stream.cpp.
  static void forget(std::shared_ptr<Record> record);
  static std::shared_ptr<Record> forgotten_record();
  void all_wait_for(const std::shared_ptr<Record>& record);
  std::shared_ptr<std::vector<Item>> shared_capture();
  void hold();

 private:
  void* allocate(int32_t kind, size_t size);
  std::vector<std::shared_ptr<Queue>> queues();

  Machine& machine_;
  const int32_t index_;
  const Abilities abilities_;
  aa_host_device* const host_;
  DeviceMemory memory_;
  DeviceMemory spare_;
  FileMemory file_memory_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Queue>> queues_;
  std::shared_ptr<Queue> shared_queue_;
  std::shared_ptr<std::vector<Item>> shared_capture_;
};

}  // namespace reference
