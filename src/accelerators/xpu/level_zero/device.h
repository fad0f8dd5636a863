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
  // Level Zero's core API does not report free memory: memory that this process did not allocate counts as free.
  void memory_info(int64_t& free, int64_t& total) override;
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override;
  void mem_free(const aa_allocation& what) override;
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params& params) override;
  std::unique_ptr<abi::Event> event_create(const aa_event_params& params) override;
  std::unique_ptr<abi::Module> module_load(const aa_module_params& params) override;
  const char* compile_languages() override;
  std::string compile_fingerprint() override;
  abi::CompileOutput compile(const aa_compile& what) override;
  void kernel_tuning(aa_kernel_tuning& tuning) override;
  bool can_copy_from(abi::Device& source) override;

  const DeviceState& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<DeviceState> state_;
  std::shared_ptr<StreamList> streams_ = std::make_shared<StreamList>();
  std::atomic<uint64_t> allocated_{0};  // bytes of device memory
  std::atomic<uint32_t> next_queue_{0};
};

}  // namespace anyaccel::xpu::level_zero
