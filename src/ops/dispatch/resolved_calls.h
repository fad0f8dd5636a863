// Remembers the calls of ops that were checked and resolved before, with the implementation of each.
//
// A call's check (op_schema.h) and the accelerator's answer (Accelerator::resolve_op) depend on the call's class: the
// op, the device, the parameters, the dtype, shape, strides and alignment of each tensor, and where those that are
// written meet others in memory. The answer for a class is valid as long as the accelerator lives, so it is only ever
// forgotten to make room for another.
//
// Lookups take no lock and allocate nothing: each slot has a version, which is odd while the slot is written, and a
// reader that sees it change treats the slot as empty. A class that was evicted is checked and resolved again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "anyaccel/abi/ops.h"
#include "anyaccel/accelerator.h"

namespace anyaccel::ops {

class ResolvedCalls {
 public:
  // A serialized class of calls. `call.op` is the accelerator's number of the op.
  class Class {
   public:
    // `written`: a bit for each tensor that is written (OpSchema::written).
    Class(const aa_op_call& call, int device, uint32_t written) noexcept;

   private:
    friend class ResolvedCalls;
    static constexpr size_t kMost = 96;  // the longest op of the list, norm_qkv_rope, has 77

    bool add(uint64_t word) noexcept;

    size_t size_ = 0;  // 0: too long to be remembered
    uint64_t hash_ = 0;
    std::array<uint64_t, kMost> words_;
  };

  ResolvedCalls() = default;
  ~ResolvedCalls();
  ResolvedCalls(const ResolvedCalls&) = delete;
  ResolvedCalls& operator=(const ResolvedCalls&) = delete;

  // Returns the answer for calls of the class; nothing if it is not known. Thread-safe.
  std::optional<OpHandle> find(const Class& wanted) const noexcept;
  // Thread-safe. Does nothing while another thread does the same.
  void remember(const Class& resolved, OpHandle handle);

 private:
  static constexpr size_t kSets = 32;
  static constexpr size_t kWays = 4;

  struct Slot {
    std::atomic<uint64_t> version;  // 0: never written
    std::atomic<uint64_t> hash;
    std::atomic<uint64_t> size;
    std::atomic<uint64_t> handle;
    std::array<std::atomic<uint64_t>, Class::kMost> words;
  };
  struct Set {
    std::array<Slot, kWays> slots;
    size_t oldest;  // writing_
  };
  using Table = std::array<Set, kSets>;

  static bool holds(const Slot& slot, const Class& wanted) noexcept;

  std::atomic<Table*> table_{nullptr};  // created with the first class
  std::mutex writing_;
};

}  // namespace anyaccel::ops
