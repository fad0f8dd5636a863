// An opened device.
#pragma once

#include <atomic>
#include <memory>

#include "accelerators/xpu/level_zero/device_state.h"
#include "accelerators/xpu/level_zero/stream.h"

namespace anyaccel::xpu::level_zero {

inline constexpr size_t memory_alignment = 256;  // bytes

class Device final : public abi::Device {
 public:
  explicit Device(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}

  void synchronize() override;
  // Level Zero's core has no free memory: what this process did not allocate counts as free.
  void memory_info(int64_t& free, int64_t& total) override;
  void* mem_alloc(int32_t kind, size_t size) override;
  void mem_free(int32_t kind, void* pointer, size_t size) override;
  std::unique_ptr<abi::Stream> stream_create(int32_t priority, uint32_t flags) override;
  std::unique_ptr<abi::Event> event_create(uint32_t flags) override;
  std::unique_ptr<abi::Module> module_load(const void* image, size_t size, const char* format) override;
  const char* compile_languages() override;
  std::string compile_fingerprint() override;
  abi::CompileOutput compile(const char* language, const char* name, const char* source, size_t source_size,
                             const char* const* options, size_t option_count) override;
  void kernel_tuning(aa_kernel_tuning& tuning) override;

 private:
  std::shared_ptr<DeviceState> state_;
  std::shared_ptr<StreamList> streams_ = std::make_shared<StreamList>();
  std::atomic<uint64_t> allocated_{0};  // bytes of device memory
  std::atomic<uint32_t> next_queue_{0};
};

}  // namespace anyaccel::xpu::level_zero
