// Declares functions that the classes of the two quantizers share: checks of their tensors, and calls of functions with
// dense tensors.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "anyaccel/generator.h"
#include "ops/host/host_tensors.h"

namespace anyaccel::ops {

// Throws InvalidArgument "<op>: <what>".
[[noreturn]] void refuse_call(const char* op, const std::string& what);
// Returns "float32 [2, 3]" or "absent", for example.
std::string tensor_text(const Tensor& tensor);
// Returns "in ordinary host memory" or "on device cpu", for example. Device::name() gives the host and the CPU accelerator
// the same name.
std::string place_text(const Device& device);

void check_present(const char* op, const char* name, const Tensor& tensor);
// Checks that the tensor is present and is F32, F16 or BF16.
void check_float(const char* op, const char* name, const Tensor& tensor);
void check_dtype(const char* op, const char* name, const Tensor& tensor, DType dtype);
void check_float_dtype(const char* op, DType dtype);
void check_numel(const char* op, const char* name, const Tensor& tensor, int64_t expected);
// Checks that the tensor is where `other` is.
void check_place(const char* op, const char* name, const Tensor& tensor, const char* other_name, const Tensor& other);

// The state from which a call over `numel` elements draws its random numbers; the generator advances. If the generator
// is null, nothing is drawn.
struct DrawState {
  int32_t stochastic = 0;
  uint64_t seed = 0;
  uint64_t offset = 0;
};
DrawState draw_words(Generator* generator, int64_t numel);

// Calls `body` with dense tensors, whatever the strides of the given ones. Throws InvalidArgument if one that is written
// shares memory with another one.
//   - If `kernels`, and all tensors lie on one device of the accelerator, `body` gets them there, and its number;
//     work that it enqueues on the current stream is in order.
//   - Else it works like run_on_host().
void run_dense(Accelerator& accelerator, bool kernels, const char* op, std::initializer_list<HostTensor> tensors,
               const std::function<void(std::span<Tensor>, std::optional<int> device)>& body);

}  // namespace anyaccel::ops
