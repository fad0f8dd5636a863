// An opened device.
#pragma once

#include <memory>
#include <string>

#include "accelerators/cuda/device_state.h"
#include "accelerators/cuda/files.h"
#include "accelerators/cuda/ops/op_library.h"

namespace anyaccel::cuda {

class Device final : public abi::Device {
 public:
  Device(const Platform& platform, int32_t index);

  DeviceState& state() noexcept { return state_; }

  // Throws an error of work that nobody has waited for.
  void close() override;
  void synchronize() override;
  void memory_info(int64_t& free, int64_t& total) override;
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override;
  void mem_free(const aa_allocation& what) override;
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params& params) override;
  std::unique_ptr<abi::Event> event_create(const aa_event_params& params) override;
  std::unique_ptr<abi::Module> module_load(const aa_module_params& params) override;
  void register_range(const aa_register& what, aa_registration& out) override;
  void unregister_range(void* pointer) override;
  // "context": the CUcontext.
  void* native(const char* what) override;
  bool supports_op(const aa_op_call& call) override;
  bool can_copy_from(abi::Device& source) override;
  const char* compile_languages() override;
  std::string compile_fingerprint() override;
  abi::CompileOutput compile(const aa_compile& what) override;
  void kernel_tuning(aa_kernel_tuning& tuning) override;
  void files_info(aa_files_info& info) override { describe_files(state_, info); }
  void file_memory_register(const aa_file_memory& what) override { file_memory_.add(what.pointer, what.size); }
  void file_memory_unregister(void* pointer) override { file_memory_.remove(pointer); }
  std::unique_ptr<abi::DirectFile> file_open(int descriptor) override {
    return open_file(state_, file_memory_, descriptor);
  }
  double measure_ceiling(int32_t kind, size_t bytes, double seconds) override;
  std::unique_ptr<abi::Communicator> comm_create(const void* id, int32_t rank, int32_t size) override;

 private:
  DeviceState state_;  // first: everything else uses it
  OpLibrary ops_;
  FileMemory file_memory_;
};

}  // namespace anyaccel::cuda
