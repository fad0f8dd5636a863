// Formats amounts of memory for people.
#pragma once

#include <string>

namespace anyaccel {

// Returns "512 B" or "1.5 GB", for example: decimal units, with one digit after the point.
std::string format_bytes(double bytes);

}  // namespace anyaccel
