// Measures the parts of a call one after the other.
#pragma once

#include <chrono>
#include <utility>

namespace anyaccel::llm {

class Stopwatch {
 public:
  // Returns the seconds since construction or the last call.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace anyaccel::llm
