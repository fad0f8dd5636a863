// Checks the tensors that are passed to a layer or an op library, and names the arguments in error messages.
#pragma once

#include <initializer_list>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "runtime/tensor/common_bytes.h"

namespace anyaccel::ops {

// The dtypes in which the ops compute, for ArgumentChecks::one_of.
inline constexpr std::initializer_list<DType> float_dtypes = {DType::F32, DType::F16, DType::BF16};

class ArgumentChecks {
 public:
  // Error messages begin with `function`.
  ArgumentChecks(Accelerator& accelerator, std::string function)
      : accelerator_(accelerator), function_(std::move(function)) {}

  [[noreturn]] void fail(const std::string& what) const { throw InvalidArgument(function_ + ": " + what); }
  void require(bool good, const std::string& what) const {
    if (!good) fail(what);
  }

  // Checks that the tensor is present and lies on the accelerator, on the device of the first tensor that was checked.
  void present(const char* name, const Tensor& tensor) {
    if (!tensor) fail(std::string(name) + " is absent, expected a tensor");
    const Device place = tensor.device();
    const bool usable = place.accelerator == &accelerator_ || (place.is_host() && accelerator_.is_host_coherent());
    const int index = place.accelerator == &accelerator_ ? place.index : 0;
    if (usable && device_ < 0) device_ = index;
    if (!usable || index != device_) {
      fail(std::string(name) + " lies on " + place.name() + ", expected " +
           accelerator_.device_name(device_ < 0 ? 0 : device_) + "; copy it with Tensor::to()");
    }
  }
  void dtype(const char* name, const Tensor& tensor, DType expected) {
    present(name, tensor);
    if (tensor.dtype() != expected) {
      fail(std::string(name) + " has dtype " + std::string(dtype_name(tensor.dtype())) + ", expected " +
           std::string(dtype_name(expected)));
    }
  }
  void one_of(const char* name, const Tensor& tensor, std::initializer_list<DType> expected) {
    present(name, tensor);
    std::string names;
    for (const DType t : expected) {
      if (tensor.dtype() == t) return;
      names += (names.empty() ? "" : " or ") + std::string(dtype_name(t));
    }
    fail(std::string(name) + " has dtype " + std::string(dtype_name(tensor.dtype())) + ", expected " + names);
  }
  void tensor(const char* name, const Tensor& tensor, DType expected, const Shape& shape) {
    dtype(name, tensor, expected);
    if (!(tensor.shape() == shape)) {
      fail(std::string(name) + " has shape " + tensor.shape().to_string() + ", expected " + shape.to_string());
    }
  }
  void optional(const char* name, const Tensor& t, DType expected, const Shape& shape) {
    if (t) tensor(name, t, expected, shape);
  }
  // Checks that a tensor that is written shares no memory with another one, which may be absent.
  void apart(const char* written, const Tensor& a, const char* other, const Tensor& b) {
    if (!b || a.device() != b.device() || !have_common_bytes(a.view_for_driver(), b.view_for_driver())) return;
    fail(std::string(written) + " is written and shares memory with " + other + ", expected memory of its own");
  }
  void rank(const char* name, const Tensor& t, int dimensions, const char* shape) {
    present(name, t);
    if (t.ndim() != dimensions) {
      fail(std::string(name) + " has shape " + t.shape().to_string() + ", expected " + shape);
    }
  }

 private:
  Accelerator& accelerator_;
  std::string function_;
  int device_ = -1;
};

}  // namespace anyaccel::ops
