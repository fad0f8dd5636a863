// Implements host_tensors.h, which gives ops that run on the host access to their tensors.
#include "ops/host/host_tensors.h"

#include <mutex>
#include <set>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "ops/dispatch/fallback.h"

namespace anyaccel::ops {
bool host_reaches(const Tensor& tensor) {
  const Device place = tensor.device();
  return place.is_host() || place.accelerator->is_host_coherent();
}

namespace {

// Logs one warning per op and accelerator.
void note_staging(Accelerator& accelerator, const std::string& op_name) {
  const std::string what = accelerator.name() + " has no op \"" + op_name + "\"";
  if (fallback_is_error()) {
    throw NotImplementedError(what + ", and ANYACCEL_FALLBACK=error forbids running it on the CPU");
  }
  static std::mutex mutex;
  static auto& noted = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  if (noted.insert(what).second) {
    log_warning(what + "; it runs on the CPU, with copies there and back (ANYACCEL_FALLBACK=error forbids that)");
  }
}

}  // namespace

void run_on_host(Accelerator& accelerator, const char* op_name, std::span<const HostTensor> tensors,
                 const std::function<void(std::span<Tensor>)>& body) {
  std::vector<Tensor> reached(tensors.size());
  std::vector<size_t> write_back;
  bool waited = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = *tensors[i].tensor;
    if (!tensor) continue;
    if (!tensor.device().is_host() && !waited) {
      check_not_capturing(*tensor.device().accelerator, tensor.device().index, op_name);
      accelerator.current_stream(tensor.device().index).synchronize();
      waited = true;
    }
    if (host_reaches(tensor)) {
      reached[i] = tensor;
      continue;
    }
    note_staging(accelerator, op_name);
    reached[i] = tensors[i].use == HostUse::Out ? Tensor::empty(tensor.shape(), tensor.dtype()) : tensor.to(Device{});
    if (tensors[i].use != HostUse::In) write_back.push_back(i);
  }
  body(reached);
  for (const size_t i : write_back) tensors[i].tensor->copy_from(reached[i]);
}

}  // namespace anyaccel::ops
