// Identifies a place where memory can be: the host, or one device of an accelerator.
//
// A name can be passed wherever a device is expected: Tensor::empty(shape, dtype, "cuda:0"), tensor.to("cpu"),
// tensor.to(get_accelerator()->current_device_name()).
#pragma once

#include <string>
#include <string_view>

#include "anyaccel/package_path.h"

namespace anyaccel {

class Accelerator;

// A small value; two are equal if they name the same accelerator object and index. It does not own the accelerator: one
// that get_accelerator() has returned lives until the process ends, others (make_accelerator) as long as their owner
// keeps them.
struct Device {
  Accelerator* accelerator = nullptr;  // null: ordinary host memory
  int index = 0;                       // index of the accelerator's device; 0 for the host

  constexpr Device() = default;
  constexpr Device(Accelerator* owner, int device_index) noexcept : accelerator(owner), index(device_index) {}
  // Finds the device with a name of get_accelerator(): "cuda" (the calling thread's current device), "cuda:1". "cpu" is
  // ordinary host memory, unless that is the name of the accelerator itself. Detects the accelerator and opens its
  // runtime if necessary. Throws InvalidArgument, which lists the valid names, for anything else: an index out of range
  // (code AA_OUT_OF_RANGE), another accelerator's name, a string that is not a name.
  Device(std::string_view name);  // NOLINT(google-explicit-constructor): a name is a device
  Device(const std::string& name) : Device(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)
  Device(const char* name);                                            // NOLINT(google-explicit-constructor)

  bool is_host() const noexcept { return accelerator == nullptr; }
  // Returns "cuda:1", for example; "cpu" for the host and for the CPU accelerator.
  std::string name() const;

  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace anyaccel
