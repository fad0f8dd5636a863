// Implements quant_support.h, the functions that the classes of the two quantizers share.
#include "ops/host/quant_support.h"

#include <vector>

#include "anyaccel/error.h"
#include "runtime/tensor/common_bytes.h"

namespace anyaccel::ops {

void refuse_call(const char* op, const std::string& what) { throw InvalidArgument(std::string(op) + ": " + what); }

std::string place_text(const Device& device) {
  return device.is_host() ? "in ordinary host memory" : "on device " + device.name();
}

std::string tensor_text(const Tensor& tensor) {
  if (!tensor) return "absent";
  return std::string(dtype_name(tensor.dtype())) + " " + tensor.shape().to_string();
}

void check_place(const char* op, const char* name, const Tensor& tensor, const char* other_name, const Tensor& other) {
  if (tensor.device() == other.device()) return;
  refuse_call(op, std::string(name) + " must be where " + other_name + " is, " + place_text(other.device()) +
                      ", and is " + place_text(tensor.device()) + "; Tensor::to() copies it");
}

void check_present(const char* op, const char* name, const Tensor& tensor) {
  if (!tensor) refuse_call(op, std::string(name) + " is absent");
}

void check_float(const char* op, const char* name, const Tensor& tensor) {
  check_present(op, name, tensor);
  if (!is_op_float(tensor.dtype())) {
    refuse_call(op, std::string(name) + " must be float32, float16 or bfloat16, and is " + tensor_text(tensor));
  }
}

void check_dtype(const char* op, const char* name, const Tensor& tensor, DType dtype) {
  check_present(op, name, tensor);
  if (tensor.dtype() != dtype) {
    refuse_call(op,
                std::string(name) + " must be " + std::string(dtype_name(dtype)) + ", and is " + tensor_text(tensor));
  }
}

void check_float_dtype(const char* op, DType dtype) {
  if (!is_op_float(dtype)) {
    refuse_call(op, "the result can be float32, float16 or bfloat16, not " + std::string(dtype_name(dtype)));
  }
}

void check_numel(const char* op, const char* name, const Tensor& tensor, int64_t expected) {
  if (tensor.numel() != expected) {
    refuse_call(
        op, std::string(name) + " must have " + std::to_string(expected) + " elements, and is " + tensor_text(tensor));
  }
}

DrawState draw_words(Generator* generator, int64_t numel) {
  if (!generator) return {};
  const RngState state = generator->reserve((static_cast<uint64_t>(numel) + 3) / 4);
  return {1, state.seed, state.offset};
}

namespace {

// Returns the device of the accelerator on which all tensors lie; nothing if there is no such device.
std::optional<int> common_device(const Accelerator& accelerator, std::initializer_list<HostTensor> tensors) {
  std::optional<int> index;
  for (const HostTensor& t : tensors) {
    if (!*t.tensor) continue;
    const Device place = t.tensor->device();
    if (place.accelerator != &accelerator || (index && *index != place.index)) return std::nullopt;
    index = place.index;
  }
  return index;
}

// Refuses a call in which a tensor that is written shares memory with another one.
void check_own_memory(const char* op, std::initializer_list<HostTensor> tensors) {
  for (const HostTensor* a = tensors.begin(); a != tensors.end(); ++a) {
    for (const HostTensor* b = a + 1; b != tensors.end(); ++b) {
      if (!*a->tensor || !*b->tensor || (a->use == HostUse::In && b->use == HostUse::In)) continue;
      if (a->tensor->device() != b->tensor->device()) continue;
      if (!have_common_bytes(a->tensor->view_for_driver(), b->tensor->view_for_driver())) continue;
      const bool first = a->use != HostUse::In;
      refuse_call(op, "the tensor " + tensor_text(*(first ? a : b)->tensor) +
                          ", which is written, shares memory with the tensor " + tensor_text(*(first ? b : a)->tensor) +
                          " of the same call; expected memory of its own");
    }
  }
}

}  // namespace

void run_dense(Accelerator& accelerator, bool kernels, const char* op, std::initializer_list<HostTensor> tensors,
               const std::function<void(std::span<Tensor>, std::optional<int> device)>& body) {
  check_own_memory(op, tensors);
  std::vector<Tensor> dense;
  std::vector<HostTensor> list;
  dense.reserve(tensors.size());
  for (const HostTensor& t : tensors) {
    if (!*t.tensor || t.tensor->is_contiguous()) {
      dense.push_back(*t.tensor);
    } else if (t.use == HostUse::Out) {
      dense.push_back(Tensor::empty(t.tensor->shape(), t.tensor->dtype(), t.tensor->device()));
    } else {
      dense.push_back(t.tensor->contiguous());
    }
    list.push_back({&dense.back(), t.use});
  }
  if (const std::optional<int> device = kernels ? common_device(accelerator, tensors) : std::nullopt) {
    body(dense, device);
  } else {
    run_on_host(accelerator, op, list, [&](std::span<Tensor> reached) { body(reached, std::nullopt); });
  }
  size_t i = 0;
  for (const HostTensor& t : tensors) {
    if (t.use != HostUse::In && *t.tensor && !t.tensor->is_contiguous()) t.tensor->copy_from(dense[i]);
    ++i;
  }
}

}  // namespace anyaccel::ops
