// Small things that every part of the OpenCL runtime uses: errors with OpenCL's own names, owning handles, and questions
// of the clGet*Info kind.
#pragma once

#include <string>
#include <utility>

#include "accelerators/xpu/opencl/opencl_api.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::xpu::opencl {

// "CL_OUT_OF_RESOURCES (-5)".
std::string error_name(cl_int error);
// Throws abi::Failure if `error` is an error; `what` names the request ("clBuildProgram of softmax").
void check(cl_int error, const std::string& what);
void check(cl_int error, const char* what);

// Owns one reference of an OpenCL object.
template <class Handle, cl_int (*Api::*release)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Api& api, Handle handle) noexcept : api_(&api), handle_(handle) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  void reset() noexcept {
    if (handle_) (api_->*release)(handle_);
    handle_ = nullptr;
  }
  // Returns the address to which a function writes a new object.
  Handle* out(const Api& api) noexcept {
    reset();
    api_ = &api;
    return &handle_;
  }

 private:
  const Api* api_ = nullptr;
  Handle handle_ = nullptr;
};

using OwnedContext = Owned<cl_context, &Api::ReleaseContext>;
using OwnedQueue = Owned<cl_command_queue, &Api::ReleaseCommandQueue>;
using OwnedProgram = Owned<cl_program, &Api::ReleaseProgram>;
using OwnedKernel = Owned<cl_kernel, &Api::ReleaseKernel>;
using OwnedEvent = Owned<cl_event, &Api::ReleaseEvent>;

// Another reference to the same event; empty for null.
inline OwnedEvent share(const Api& api, cl_event event) noexcept {
  if (event) api.RetainEvent(event);
  return OwnedEvent(api, event);
}

// The text that a clGet*Info call gives: `get(size, value, out_size)` is the call with everything else bound. Empty when
// it fails.
template <class Get>
std::string text_of(Get&& get) {
  size_t size = 0;
  if (get(size_t{0}, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (get(size, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
  return text;
}

}  // namespace anyaccel::xpu::opencl
