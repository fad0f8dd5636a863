// Writes a number as a person would.
#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace anyaccel {

// Returns six digits, or as many as tell the number from its neighbours (among floats, if it is one), with an exponent where needed,
// in any locale. (std::to_string() gives "0.000000" for 1e-8.)
inline std::string number_text(double value) {
  const auto narrow = static_cast<float>(std::abs(value) <= std::numeric_limits<float>::max() ? value : 0.0);
  const bool is_float = static_cast<double>(narrow) == value;
  const int most = is_float ? std::numeric_limits<float>::max_digits10 : std::numeric_limits<double>::max_digits10;
  char text[64];
  for (int digits = 6;; ++digits) {
    const std::to_chars_result end =
        std::to_chars(text, text + sizeof(text), value, std::chars_format::general, digits);
    double read = 0;
    std::from_chars(text, end.ptr, read);
    if (digits >= most || (is_float ? static_cast<float>(read) == narrow : read == value)) return {text, end.ptr};
  }
}

}  // namespace anyaccel
