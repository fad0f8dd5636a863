// Finds the cache folder, and reads and writes its files: data that can be recreated, such as compiled ops and
// measurements.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/trusted_path.h"

namespace anyaccel {

// ANYACCEL_CACHE_DIR, else $XDG_CACHE_HOME/anyaccel, else ~/.cache/anyaccel; empty when none of the three is set. Read
// from the environment each time; does not create the folder.
std::filesystem::path cache_directory();
// Logs one warning that nothing is kept, for callers that would have kept something and found no cache_directory().
void warn_that_nothing_is_kept();

// Files of the cache are run as code or decide which code runs, so no folder that another user could change is used
// (trusted_path.h). The process then works without the cache, and logs one warning.

// Opens a folder of the cache, creating missing folders. Warns about an untrusted folder; the caller reports one that
// cannot be created or written.
TrustedPath make_cache_folder(const std::filesystem::path& folder);
// Opens a folder of the cache that may be missing; warns about an untrusted one.
TrustedPath open_cache_folder(const std::filesystem::path& folder);

// Returns the contents of a file of the cache; nothing if it is missing, larger than `most_bytes`, or untrusted. Warns
// about an untrusted folder; an untrusted file counts as missing.
std::optional<std::string> read_cache_file(const std::filesystem::path& file, size_t most_bytes);
// Replaces a file of the cache atomically; only its owner can write it. Returns an empty text, or the reason for
// failure; also empty for an untrusted folder, which causes a warning.
std::string write_cache_file(const std::filesystem::path& file, std::string_view text);

}  // namespace anyaccel
