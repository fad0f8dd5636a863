// Runs a case in a process of its own under a watchdog: a crash, an exit or a hang there fails only that case.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "conformance/case_run.h"

namespace anyaccel::conformance {

// A slot in memory shared with the children of this process, whatever they do to their file descriptors.
class SharedSlot {
 public:
  SharedSlot();  // throws std::bad_alloc
  ~SharedSlot();
  SharedSlot(const SharedSlot&) = delete;
  SharedSlot& operator=(const SharedSlot&) = delete;

  Slot& get() const noexcept { return *slot_; }
  // Resets the slot to its initial state.
  void reset() const noexcept;

 private:
  Slot* slot_;
};

// Runs `body`, which fills the slot, in a child and waits for it, `timeout` at most. Returns "" if the child completed
// the slot, else how it ended: a signal, an exit status, or killed because it hung. Text that the child prints to
// standard output does not reach this process's output; `printed` receives its beginning.
std::string run_in_child(const std::function<void()>& body, const Slot& slot, std::chrono::milliseconds timeout,
                         std::string& printed);

}  // namespace anyaccel::conformance
