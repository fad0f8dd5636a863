// Implements recipe_files.h. Synapse reads and writes recipes only as files with given names; these are in a private
// folder, and the cache stores their bytes.
#include "accelerators/hpu/recipe_files.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string_view>

#include "base/files/files.h"
#include "base/files/image_cache.h"
#include "base/hash.h"

namespace anyaccel::hpu {
namespace {

constexpr const char* layout = "hpu recipe 2";  // changes when the graph of the same calls changes

// Thrown if the bytes of a recipe cannot be obtained.
struct NotKept {};

// Identifies the library's file by path, size and modification time, which differ between releases.
std::string library_of(const Api& api) {
  Dl_info info{};
  struct stat status {};
  if (dladdr(reinterpret_cast<void*>(api.synGraphCompile), &info) == 0 || !info.dli_fname) return {};
  if (stat(info.dli_fname, &status) != 0) return {};
  return std::string(info.dli_fname) + " " + std::to_string(status.st_size) + " " +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

}  // namespace

RecipeFiles::RecipeFiles(const Api& api, int device_type) : api_(api) {
  char version[name_bytes] = {};
  if (!api.synDriverGetVersion || !api.synRecipeSerialize || !api.synRecipeDeSerialize ||
      api.synDriverGetVersion(version, sizeof(version) - 1) != 0) {
    return;
  }
  if (const std::string library = library_of(api); !library.empty()) {
    maker_ = library + "\n" + version + "\n" + std::to_string(device_type);
  }
}

std::string RecipeFiles::serialized(void* recipe) const {
  const TemporaryFolder folder("recipe");
  const std::string file = folder.file("recipe");
  if (api_.synRecipeSerialize(recipe, file.c_str()) != 0) throw NotKept{};
  std::ifstream stream(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream || bytes.empty()) throw NotKept{};
  return bytes;
}

void* RecipeFiles::get(const std::vector<int64_t>& key, const std::function<void*()>& compile) const {
  if (maker_.empty()) return compile();
  Hash hash;
  hash.add(image_magic).add(layout).add(maker_);
  hash.add(std::string_view(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t)));
  void* recipe = nullptr;
  const auto use = [&](const DeviceImage& image, bool kept) -> std::string {
    if (!kept) return {};
    const TemporaryFolder folder("recipe");
    const std::string file = folder.file("recipe");
    if (const std::string problem = replace_file(file, image.bytes, 0600); !problem.empty()) return problem;
    const SynStatus status = api_.synRecipeDeSerialize(&recipe, file.c_str());
    return status == 0 ? std::string() : "synRecipeDeSerialize gave " + status_text(api_, status);
  };
  const auto make = [&] {
    recipe = compile();
    return DeviceImage{"synapse", serialized(recipe)};
  };
  try {
    use_image(image_file("hpu_recipes", hash.text()), "hpu: a recipe", use, make);
  } catch (const NotKept&) {
    // The recipe can be used nevertheless.
  } catch (...) {
    if (recipe) api_.synRecipeDestroy(recipe);
    throw;
  }
  return recipe;
}

}  // namespace anyaccel::hpu
