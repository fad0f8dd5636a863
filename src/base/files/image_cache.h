// Caches compiled device code on disk, for all code that compiles kernels. An image is found by a hash of all its
// inputs, checked, compiled by one process at a time, and compiled again if it is damaged or a driver rejects it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace anyaccel {

struct DeviceImage {
  std::string format;  // as the compiler named it
  std::string bytes;
};

// Returns <cache>/ops/<op>/<hash>.image; empty if there is no cache folder. `hash` as computed by Hash.
std::filesystem::path image_file(const std::string& op, const std::string& hash);

// Returns the cached image; nothing if there is none or it is damaged. The path may be empty.
std::optional<DeviceImage> read_image(const std::filesystem::path& file);

// Identifies the layout of images; include it in the hash.
extern const char* const image_magic;

// Calls `use` with an image: the cached one, else the result of `make`, which is then cached. For a cached image `use`
// may return why the driver rejects it; the image is then deleted and created again. The returned text for a fresh
// image is ignored: `use` throws in that case. `what` names the work in messages. Processes that want the same image
// take turns.
void use_image(const std::filesystem::path& file, const std::string& what,
               const std::function<std::string(DeviceImage image, bool kept)>& use,
               const std::function<DeviceImage()>& make);

}  // namespace anyaccel
