// Where anyaccel keeps what it may lose: compiled ops, remembered measurements.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/trusted_path.h"

namespace anyaccel {

// ANYACCEL_CACHE_DIR, else $XDG_CACHE_HOME/anyaccel, else ~/.cache/anyaccel; empty when none of the three is set. Read
// from the environment each time; does not create the folder.
std::filesystem::path cache_directory();

// What is read from the cache is run as code or decides what is run, so nothing is read from or written to a folder of it that
// another user could change (trusted_path.h). The process then does without, and says so once: that is what a warning here is.

// Opens a folder of the cache, making what is missing. A folder that is refused is warned about; one that cannot be made or
// written is the caller's to tell.
TrustedPath make_cache_folder(const std::filesystem::path& folder);
// Opens a folder of the cache that may be missing; one that is refused is warned about.
TrustedPath open_cache_folder(const std::filesystem::path& folder);

// The contents of a file of the cache; nothing when it is missing, larger than `most_bytes`, or could be another user's. A
// refused folder is warned about, a refused file is as good as missing.
std::optional<std::string> read_cache_file(const std::filesystem::path& file, size_t most_bytes);
// Gives a file of the cache these contents as a whole or leaves it as it was; only its owner can write it. Empty, or why it
// was not possible; empty too for a refused folder, which is warned about.
std::string write_cache_file(const std::filesystem::path& file, std::string_view text);

}  // namespace anyaccel
