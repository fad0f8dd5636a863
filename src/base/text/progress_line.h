// Formats the progress of long work as one line for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anyaccel {

enum class ProgressUnit { Bytes, Count };

// Returns a line such as "loading [=====>    ] 1.2 GB of 2.2 GB, 850 MB/s, 2 s left", of at most `columns` characters:
// the bar is left out where it does not fit. `seconds` is the time since the work began; no rate and no time are shown
// before half a second of it.
std::string progress_line(std::string_view what, ProgressUnit unit, uint64_t done, uint64_t total, double seconds,
                          size_t columns);

}  // namespace anyaccel
