// Amounts of memory as people read them.
#pragma once

#include <string>

namespace anyaccel {

// "512 B", "1.5 GB": decimal units, one digit behind the point.
std::string format_bytes(double bytes);

}  // namespace anyaccel
