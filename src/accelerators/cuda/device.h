// An opened device.
#pragma once

#include <memory>
#include <string>

#include "accelerators/cuda/device_state.h"
#include "accelerators/cuda/ops/op_library.h"

namespace anyaccel::cuda {

class Device final : public abi::Device {
 public:
  Device(const Platform& platform, int32_t index);

  DeviceState& state() noexcept { return state_; }

  // Reports an error of work that nobody waited for.
  void close() override;
  void synchronize() override;
  void memory_info(int64_t& free, int64_t& total) override;
  void* mem_alloc(int32_t kind, size_t size) override;
  void mem_free(int32_t kind, void* pointer, size_t size) override;
  std::unique_ptr<abi::Stream> stream_create(int32_t priority, uint32_t flags) override;
  std::unique_ptr<abi::Event> event_create(uint32_t flags) override;
  std::unique_ptr<abi::Module> module_load(const void* image, size_t size, const char* format) override;
  void register_range(void* pointer, size_t size) override;
  void unregister_range(void* pointer) override;
  void* alloc_on_node(size_t size, int32_t numa_node) override;
  bool supports_op(const aa_op_call& call) override;
  const char* compile_languages() override;
  std::string compile_fingerprint() override;
  abi::CompileOutput compile(const char* language, const char* name, const char* source, size_t source_size,
                             const char* const* options, size_t option_count) override;
  void kernel_tuning(aa_kernel_tuning& tuning) override;
  double measure_ceiling(int32_t kind, size_t bytes, double seconds) override;
  std::unique_ptr<abi::Communicator> comm_create(const void* id, int32_t rank, int32_t size) override;

 private:
  DeviceState state_;  // first: everything else uses it
  OpLibrary ops_;
};

}  // namespace anyaccel::cuda
