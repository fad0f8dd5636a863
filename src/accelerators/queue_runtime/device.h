// An opened device, and the driver, as far as they are the same for every vendor of this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "accelerators/collective_library/library.h"
#include "accelerators/queue_runtime/stream.h"

namespace anyaccel::queue_runtime {

class Device final : public abi::Device {
 public:
  // `collectives` may be null; it is called when a communicator is created, and returns the vendor's library or throws.
  using CollectiveLibrary = const collectives::Library& (*)();
  Device(std::shared_ptr<DeviceState> state, CollectiveLibrary collectives)
      : state_(std::move(state)), collectives_(collectives) {}

  void synchronize() override;
  void memory_info(int64_t& free, int64_t& total) override;
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override;
  void mem_free(const aa_allocation& what) override;
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params& params) override;
  std::unique_ptr<abi::Event> event_create(const aa_event_params& params) override;
  bool supports_op(const aa_op_call& call) override;
  size_t packed_size(const aa_pack& what) override;
  std::unique_ptr<abi::Communicator> comm_create(const void* id, int32_t rank, int32_t size) override;

 private:
  std::shared_ptr<DeviceState> state_;
  StreamList streams_;
  CollectiveLibrary collectives_;
};

// The instance of an accelerator; its class adds `facts`, `probe` and `initialize`.
class Driver : public abi::Driver {
 public:
  Driver(std::unique_ptr<Vendor> vendor, std::vector<DeviceFacts> devices, Device::CollectiveLibrary collectives);

  uint32_t extensions() const override;
  int32_t device_count() override { return static_cast<int32_t>(runtime_->devices.size()); }
  void device_props(int32_t index, aa_device_props& props) override;
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override;
  bool mem_query(const void* pointer, aa_memory_info& info) override;
  int32_t find_op(const char* name) override;
  void collectives_library(const char*& name, const char*& version) override;
  size_t collectives_id_size() override { return collectives_().id_size(); }
  void collectives_id_create(void* id) override { collectives_().id_create(id); }
  void collectives_group_begin() override { collectives_().group_begin(); }
  void collectives_group_end() override { collectives_().group_end(); }

 private:
  const DeviceFacts& facts_of(int32_t index) const;

  std::shared_ptr<Runtime> runtime_;
  Device::CollectiveLibrary collectives_;
};

}  // namespace anyaccel::queue_runtime
