// Formats amounts of memory for people.
#include "anyaccel/format_bytes.h"

#include <array>
#include <cstdio>

namespace anyaccel {

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 6> units = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  // What would be printed as 1000 has the next unit.
  while (bytes >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < units.size()) {
    bytes /= 1000.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text.data();
}

}  // namespace anyaccel
