// Caches compiled device code on disk, for all code that compiles kernels.
#include "base/files/image_cache.h"

#include <algorithm>

#include "anyaccel/log.h"
#include "base/files/cache_dir.h"
#include "base/files/file_lock.h"
#include "base/hash.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

// Far more than the largest program of kernels.
constexpr size_t most_bytes = size_t{1} << 30;

// Losing the image only costs compiling it again, so nothing is thrown.
void write_image(const fs::path& file, const DeviceImage& image) {
  const std::string reason = write_cache_file(file, std::string(image_magic) + "\n" + image.format + "\n" +
                                                        Hash().add(image.bytes).text() + "\n" + image.bytes);
  if (reason.empty()) return;
  log_warning("the compiled kernels cannot be kept at " + file.string() + " (" + reason +
              "); set ANYACCEL_CACHE_DIR to a folder that can be written");
}

}  // namespace

// A file of the cache has a line that identifies it, the format, the hash of the image, and the image.
const char* const image_magic = "anyaccel device image 1";

fs::path image_file(const std::string& op, const std::string& hash) {
  const fs::path cache = cache_directory();
  return cache.empty() ? fs::path() : cache / "ops" / op / (hash + ".image");
}

std::optional<DeviceImage> read_image(const fs::path& file) {
  if (file.empty()) return {};
  std::optional<std::string> text = read_cache_file(file, most_bytes);
  if (!text) return {};
  size_t begin = 0;
  const auto take_line = [&] {
    const size_t end = std::min(text->find('\n', begin), text->size());
    std::string line = text->substr(begin, end - begin);
    begin = std::min(end + 1, text->size());
    return line;
  };
  DeviceImage image;
  if (take_line() != image_magic) return {};
  image.format = take_line();
  const std::string hash = take_line();
  image.bytes = text->substr(begin);
  if (Hash().add(image.bytes).text() != hash) return {};
  return image;
}

void use_image(const fs::path& file, const std::string& what,
               const std::function<std::string(DeviceImage image, bool kept)>& use,
               const std::function<DeviceImage()>& make) {
  std::error_code error;
  const auto use_kept = [&] {
    if (file.empty()) return false;
    auto image = read_image(file);
    if (!image) return false;
    const std::string refused = use(std::move(*image), true);
    if (refused.empty()) return true;
    log_warning(what + ": compiling again, because of the kept image " + file.string() + ": " + refused);
    fs::remove(file, error);
    return false;
  };
  if (use_kept()) return;

  std::optional<FileLock> lock;
  if (!file.empty()) {
    const TrustedPath folder = make_cache_folder(file.parent_path());
    if (folder.ok()) {
      const fs::path name = folder.path / file.filename();
      lock.emplace(fs::path(name).replace_extension(".lock"), std::chrono::minutes(5), what);
      if (use_kept()) return;
      fs::remove(name, error);  // damaged, or another user's
    }
  }
  DeviceImage image = make();
  if (file.empty()) {
    warn_that_nothing_is_kept();
  } else {
    write_image(file, image);
  }
  lock.reset();
  use(std::move(image), false);
}

}  // namespace anyaccel
