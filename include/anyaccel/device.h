// Names a place where memory lies: the host, or one device of an accelerator.
#pragma once

#include <string>

namespace anyaccel {

class Accelerator;

// A small value; compares by identity. Does not own the accelerator, which lives until the process ends (or until
// reset_accelerator() in tests).
struct Device {
  Accelerator* accelerator = nullptr;  // null: ordinary host memory
  int index = 0;                       // device of the accelerator; 0 for the host

  bool is_host() const noexcept { return accelerator == nullptr; }
  // "cuda:1"; "cpu" for the host and for the CPU accelerator.
  std::string name() const;

  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace anyaccel
