// Implements resolved_calls.h: remembers the implementation for each class of calls.
#include "ops/dispatch/resolved_calls.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/tensor/common_bytes.h"

namespace anyaccel::ops {
namespace {

// An accelerator's memory begins at multiples of it, and no kernel needs more.
constexpr uintptr_t largest_alignment = 256;

uint64_t packed(OpHandle handle) noexcept {
  return static_cast<uint64_t>(static_cast<uint32_t>(handle.own)) << 32 | static_cast<uint32_t>(handle.portable);
}

OpHandle unpacked(uint64_t handle) noexcept {
  return {.own = static_cast<int32_t>(handle >> 32), .portable = static_cast<int32_t>(handle)};
}

}  // namespace

bool ResolvedCalls::Class::add(uint64_t word) noexcept {
  if (size_ == kMost) return false;
  words_[size_++] = word;
  hash_ = (std::rotl(hash_, 5) ^ word) * 0x9e3779b97f4a7c15ull;
  return true;
}

ResolvedCalls::Class::Class(const aa_op_call& call, int device, uint32_t written) noexcept {
  const auto low = [](int64_t number) { return static_cast<uint64_t>(static_cast<uint32_t>(number)); };
  bool fits = add(low(call.op) << 32 | low(device)) && add(low(call.tensor_count) << 32 | low(call.params_size));
  std::array<AddressRange, AA_OP_MAX_TENSORS> ranges;
  for (uint32_t i = 0; i < call.tensor_count && fits; ++i) {
    const aa_tensor& t = call.tensors[i];
    if (t.dtype == AA_DTYPE_NONE) {
      ranges[i] = {};
      fits = add(0);
      continue;
    }
    // The lowest set bit is the alignment; a null pointer stands for memory with the allocator's alignment.
    const uintptr_t address = reinterpret_cast<uintptr_t>(t.data) | largest_alignment;
    const uint64_t packed = call.packed && call.packed[i] ? 1u << 15 : 0;
    fits = add(low(t.dtype) << 32 | low(t.ndim) << 16 | packed | (address & (~address + 1)));
    // address_range() of the usual tensor costs nothing beside the words.
    int64_t reach = 0;
    bool usual = t.data != nullptr;
    for (int32_t d = 0; d < t.ndim && fits; ++d) {
      const auto dimension = static_cast<size_t>(d);
      fits = add(static_cast<uint64_t>(t.shape[dimension])) && add(static_cast<uint64_t>(t.strides[dimension]));
      reach += (t.shape[dimension] - 1) * t.strides[dimension];
      usual &= (t.shape[dimension] > 0) & (t.strides[dimension] >= 0);
    }
    if (usual) [[likely]] {
      const auto begin = reinterpret_cast<uintptr_t>(t.data);
      ranges[i] = {begin, begin + static_cast<uintptr_t>(reach + 1) * dtype_size(static_cast<DType>(t.dtype))};
    } else {
      ranges[i] = address_range(t);
    }
  }
  for (uint32_t at = 0; at < call.params_size && fits; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(call.params) + at,
                std::min<size_t>(sizeof(word), call.params_size - at));
    fits = add(word);
  }
  for (; written && fits; written &= written - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(written));
    if (i >= call.tensor_count) break;
    for (uint32_t j = 0; j < call.tensor_count && fits; ++j) {
      if (j == i || !ranges[i].meets(ranges[j])) continue;
      const auto distance =
          reinterpret_cast<uintptr_t>(call.tensors[j].data) - reinterpret_cast<uintptr_t>(call.tensors[i].data);
      fits = add(i << 8 | j) && add(distance);
    }
  }
  if (!fits) size_ = 0;
}

ResolvedCalls::~ResolvedCalls() { delete table_.load(); }

// The words are read before the version is read again: their loads acquire, and a writer makes the version odd before
// it writes them.
bool ResolvedCalls::holds(const Slot& slot, const Class& wanted) noexcept {
  if (slot.size.load(std::memory_order_acquire) != wanted.size_) return false;
  for (size_t i = 0; i < wanted.size_; ++i) {
    if (slot.words[i].load(std::memory_order_acquire) != wanted.words_[i]) return false;
  }
  return true;
}

std::optional<OpHandle> ResolvedCalls::find(const Class& wanted) const noexcept {
  const Table* table = table_.load(std::memory_order_acquire);
  if (!table || wanted.size_ == 0) return std::nullopt;
  for (const Slot& slot : (*table)[wanted.hash_ >> 32 & (kSets - 1)].slots) {
    const uint64_t version = slot.version.load(std::memory_order_acquire);
    if (version == 0 || version & 1 || slot.hash.load(std::memory_order_acquire) != wanted.hash_) continue;
    if (!holds(slot, wanted)) continue;
    const OpHandle handle = unpacked(slot.handle.load(std::memory_order_acquire));
    if (slot.version.load(std::memory_order_relaxed) == version) return handle;
  }
  return std::nullopt;
}

void ResolvedCalls::remember(const Class& resolved, OpHandle handle) {
  if (resolved.size_ == 0) return;
  const std::unique_lock lock(writing_, std::try_to_lock);
  if (!lock) return;
  Table* table = table_.load(std::memory_order_relaxed);
  if (!table) {
    table = new Table{};
    table_.store(table, std::memory_order_release);
  }
  Set& set = (*table)[resolved.hash_ >> 32 & (kSets - 1)];
  Slot& slot = set.slots[set.oldest];
  set.oldest = (set.oldest + 1) % kWays;
  const uint64_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  slot.hash.store(resolved.hash_, std::memory_order_release);
  slot.size.store(resolved.size_, std::memory_order_release);
  slot.handle.store(packed(handle), std::memory_order_release);
  for (size_t i = 0; i < resolved.size_; ++i) slot.words[i].store(resolved.words_[i], std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

}  // namespace anyaccel::ops
