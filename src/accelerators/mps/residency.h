// Keeps a device's memory resident for its queues (MTLResidencySet, from macOS 15 on).
//
// Metal makes the buffers that a command buffer uses resident before it runs, and may let go of them when the GPU has been
// idle; a set that belongs to the queues spares both. Source: Apple's page "Simplifying GPU resource management with
// residency sets".
#pragma once

#include <mutex>

#include "accelerators/mps/objc.h"

namespace anyaccel::mps {

// The buffers of one device. Thread-safe. Where the system has no such sets, or makes none, nothing is done.
class Residency {
 public:
  explicit Residency(Id device);

  void add(Id buffer);
  // No incomplete work uses the buffer.
  void remove(Id buffer);
  // The queue's command buffers have the set from now on.
  void attach_to(Id queue) const;

 private:
  std::mutex mutex_;  // Metal does not say that a set may be changed by two threads
  Owned set_;         // null: there is none
};

}  // namespace anyaccel::mps
