// A case in a process of its own under a watchdog: what crashes, ends or hangs there is one case's failure.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "conformance/case_run.h"

namespace anyaccel::conformance {

// A slot that children of this process share, whatever they do to their file descriptors.
class SharedSlot {
 public:
  SharedSlot();  // throws std::bad_alloc
  ~SharedSlot();
  SharedSlot(const SharedSlot&) = delete;
  SharedSlot& operator=(const SharedSlot&) = delete;

  Slot& get() const noexcept { return *slot_; }
  // As it was made.
  void reset() const noexcept;

 private:
  Slot* slot_;
};

// Runs `body`, which fills the slot, in a child and waits for it, `timeout` at most. Returns "" when the child came to
// the slot's end, else what became of it: a signal, an exit status, or that it was killed because it hung. What the
// child prints to standard output is kept from this process's: `printed` gets its beginning.
std::string run_in_child(const std::function<void()>& body, const Slot& slot, std::chrono::milliseconds timeout,
                         std::string& printed);

}  // namespace anyaccel::conformance
