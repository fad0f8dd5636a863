// Names a place where memory lies: the host, or one device of an accelerator.
//
// A text is a device wherever one is taken: Tensor::empty(shape, dtype, "cuda:0"), tensor.to("cpu"),
// tensor.to(get_accelerator()->current_device_name()).
#pragma once

#include <string>
#include <string_view>

namespace anyaccel {

class Accelerator;

// A small value; compares by identity. Does not own the accelerator: one that was get_accelerator()'s lives until the
// process ends, others (make_accelerator) as long as their owner keeps them.
struct Device {
  Accelerator* accelerator = nullptr;  // null: ordinary host memory
  int index = 0;                       // device of the accelerator; 0 for the host

  constexpr Device() = default;
  constexpr Device(Accelerator* owner, int device_index) noexcept : accelerator(owner), index(device_index) {}
  // The device that a name stands for on get_accelerator(), whose names these are: "cuda" (the calling thread's current
  // device), "cuda:1". "cpu" is ordinary host memory, unless the accelerator itself is called so. Detects the
  // accelerator and opens its runtime when that was not done yet. InvalidArgument, with the names that there are, for
  // anything else: an index out of range (code AA_OUT_OF_RANGE), another accelerator's name, a text that is not a name.
  Device(std::string_view name);  // NOLINT(google-explicit-constructor): a name is a device
  Device(const std::string& name) : Device(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)
  Device(const char* name);                                            // NOLINT(google-explicit-constructor)

  bool is_host() const noexcept { return accelerator == nullptr; }
  // "cuda:1"; "cpu" for the host and for the CPU accelerator.
  std::string name() const;

  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace anyaccel
