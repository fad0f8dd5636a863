// Implements past_caches.h.
#include "accelerators/cpu/kernels/past_caches.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/simd/dispatch.h"
#include "hwy/cache_control.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/past_caches.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Copies whole blocks of 256 bytes; `to` is the beginning of a cache line.
void copy_blocks(uint8_t* to, const uint8_t* from, size_t bytes) {
  constexpr size_t kLine = 64, kBlock = 4 * kLine;
  const hn::ScalableTag<uint64_t> words;
  constexpr size_t kStep = hn::MaxLanes(hn::ScalableTag<uint64_t>()) * sizeof(uint64_t);
  // In bytes, into the second-level and into the first-level cache.
  constexpr size_t kFar = 4096, kNear = 1024;
  for (size_t i = 0; i < bytes; i += kBlock) {
    AA_UNROLL for (size_t line = i; line < i + kBlock; line += kLine) {
      __builtin_prefetch(from + line + kFar, 0, 2);
      __builtin_prefetch(from + line + kNear, 0, 3);
    }
    hn::Vec<decltype(words)> block[kBlock / kStep];
    AA_UNROLL for (size_t k = 0; k < kBlock / kStep; ++k) {
      block[k] = hn::LoadU(words, reinterpret_cast<const uint64_t*>(from + i + k * kStep));
    }
    AA_UNROLL for (size_t k = 0; k < kBlock / kStep; ++k) {
      hn::Stream(block[k], words, reinterpret_cast<uint64_t*>(to + i + k * kStep));
    }
  }
  hwy::FlushStream();
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(copy_blocks);

void copy_past_caches(void* to, const void* from, size_t bytes) noexcept {
  constexpr size_t kLine = 64, kBlock = 4 * kLine;
  if (bytes == 0) return;
  auto* const target = static_cast<uint8_t*>(to);
  const auto* const source = static_cast<const uint8_t*>(from);
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  const size_t blocks = (bytes - head) / kBlock * kBlock, tail = bytes - head - blocks;
  std::memcpy(target, source, head);
  AA_CPU_DISPATCH(copy_blocks)(target + head, source + head, blocks);
  std::memcpy(target + head + blocks, source + head + blocks, tail);
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
