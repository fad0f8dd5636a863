// The kernels of one file of kernels/cuda on one device: compiled for a set of options through a cache on disk, loaded when
// first used, and found by position afterwards.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

struct TunedLaunch {
  std::array<unsigned, 3> grid{1, 1, 1};
  unsigned block = 1;
  unsigned shared_bytes = 0;  // dynamic; more than 48 KiB is requested automatically
  // The kernel calls aa_grid_wait() before it reads what earlier kernels wrote, so that it may start while they end. Where
  // the device or the driver lacks that, the kernel simply starts after them.
  bool overlaps_previous = false;
  // No two blocks of it run on one multiprocessor, where kernels can overlap: without that, a kernel that begins while another
  // one ends takes some multiprocessors twice and leaves others empty.
  bool alone = false;
};

class TunedKernels {
 public:
  // `file` below kernels/cuda; `kernels`: their names, with the ends that AA_NAME_W and such give them; `options`:
  // "-DAA_X=bf16", .... Nothing is compiled before the first launch.
  TunedKernels(DeviceState& device, std::string file, std::vector<std::string> kernels,
               std::vector<std::string> options);
  ~TunedKernels();

  // Arguments as the kernel declares them: void* or const void* for AA_IN and AA_OUT, numbers, structs.
  template <class... Arguments>
  void launch(size_t kernel, StreamHandle stream, const TunedLaunch& shape, const Arguments&... arguments) {
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_with(kernel, stream, shape, addresses);
  }
  // The kernel, loaded.
  FunctionHandle get(size_t kernel) {
    if (FunctionHandle found = functions_[kernel].load(std::memory_order_acquire)) [[likely]]
      return found;
    return load(kernel);
  }

 private:
  FunctionHandle load(size_t kernel);
  void load_module();  // with mutex_ held
  void allow_shared_memory(size_t kernel, FunctionHandle function);
  void launch_with(size_t kernel, StreamHandle stream, const TunedLaunch& shape, void** arguments);

  DeviceState& device_;
  std::string file_;
  std::vector<std::string> kernels_;
  std::vector<std::string> options_;
  const bool overlaps_;  // whether the device can start a kernel while the one before ends
  std::vector<std::atomic<FunctionHandle>> functions_;
  std::vector<std::atomic<bool>> large_shared_;  // kernels that may have all of the shared memory
  std::mutex mutex_;                             // guards loading
  ModuleHandle module_ = nullptr;
};

}  // namespace anyaccel::cuda
