// Where anyaccel keeps what it may lose: compiled ops, remembered measurements.
#pragma once

#include <filesystem>

namespace anyaccel {

// ANYACCEL_CACHE_DIR, else $XDG_CACHE_HOME/anyaccel, else ~/.cache/anyaccel; empty when none of the three is set. Read
// from the environment each time; does not create the folder.
std::filesystem::path cache_directory();

}  // namespace anyaccel
