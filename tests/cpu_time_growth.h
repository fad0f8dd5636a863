// Measures how the time of a function grows with the size of its input, in a way that does not depend on how fast or
// how busy the machine is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ctime>

namespace anyaccel::testing {

// Between proportional and square.
inline constexpr double kMostGrowth = 30;

// CPU time of this thread in work(size) over that in work(size / 8): 8 or a little more where the time is proportional to
// the size, 64 where it grows with the square. The first of three tries that is below kMostGrowth, else the least.
template <class Work>
double cpu_time_growth(size_t size, Work&& work) {
  const auto seconds = [&](size_t n) {
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    work(n);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
  };
  double growth = 1e9;
  for (int i = 0; i < 3 && growth >= kMostGrowth; ++i) {
    const double small = seconds(size / 8);
    growth = std::min(growth, seconds(size) / std::max(small, 1e-9));
  }
  return growth;
}

}  // namespace anyaccel::testing
