// Implements base/copy_bytes.h: memcpy(), or a loop from the end to the beginning.
#include "base/copy_bytes.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace anyaccel {
namespace {

#ifdef __SSE2__
constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;
// Of the distances between the places in their pages, those that are slow; and of the sizes, those for which memcpy() does not use vectors, with
// second-level caches of up to 1 MiB.
constexpr size_t kSlowDistances = 32;
constexpr size_t kLeastRepeated = 2048, kMostRepeated = size_t{1} << 20;

bool is_just_behind(const void* to, const void* from) {
  const size_t distance = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kPage;
  return distance > 0 && distance < kSlowDistances;
}

// From the end to the beginning, because a load waits for an earlier store to the same place within another page. In the
// other direction the next loads are from where the last stores went.
void copy_backwards(char* to, const char* from, size_t bytes) {
  for (; bytes >= kLine; bytes -= kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + bytes - kLine);
    auto* target = reinterpret_cast<__m128i*>(to + bytes - kLine);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_storeu_si128(target + 3, d);
    _mm_storeu_si128(target + 2, c);
    _mm_storeu_si128(target + 1, b);
    _mm_storeu_si128(target, a);
  }
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace

void copy_bytes(void* to, const void* from, size_t bytes) noexcept {
  if (bytes == 0) return;
#ifdef __SSE2__
  if (bytes > kLeastRepeated && bytes <= kMostRepeated && is_just_behind(to, from)) {
    copy_backwards(static_cast<char*>(to), static_cast<const char*>(from), bytes);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace anyaccel
