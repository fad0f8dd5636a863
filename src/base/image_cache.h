// Compiled device code on disk, shared by everything that compiles kernels: found by a hash of all that went into it, checked,
// made by one process at a time, and made again when it is damaged or a driver refuses it.
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

// <cache>/ops/<op>/<hash>.image; empty when there is no cache folder. `hash` as Hash gives it.
std::filesystem::path image_file(const std::string& op, const std::string& hash);

// The image that is kept there; none when there is none or it is damaged. Takes an empty path.
std::optional<DeviceImage> read_image(const std::filesystem::path& file);

// What tells images of another layout apart; to be hashed with the rest.
extern const char* const image_magic;

// Hands `use` an image: the kept one, else what `make` makes, which is then kept. For a kept image `use` may answer why the
// driver refuses it; it is then removed and made anew. An answer about a fresh image is ignored: `use` throws there. `what`
// names the work in messages. Processes that want the same image take turns.
void use_image(const std::filesystem::path& file, const std::string& what,
               const std::function<std::string(DeviceImage image, bool kept)>& use,
               const std::function<DeviceImage()>& make);

}  // namespace anyaccel
