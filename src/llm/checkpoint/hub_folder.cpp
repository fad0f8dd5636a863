// Implements hub_folder.h.
#include "llm/checkpoint/hub_folder.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <string>
#include <system_error>
#include <vector>

#include "anyaccel/error.h"

namespace anyaccel::llm {

namespace fs = std::filesystem;

void refuse_hub_folder(const fs::path& dir) {
  std::error_code error;
  const fs::path path = dir.has_filename() ? dir : dir.parent_path();
  const fs::path root = path.filename() == "snapshots" ? path.parent_path() : path;
  const fs::path snapshots = root / "snapshots";
  if (!fs::is_directory(snapshots, error) || !fs::is_directory(root / "blobs", error)) return;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(snapshots, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::string message = dir.string() +
                        ": this is a folder of the Hugging Face hub's cache, in which the files of a model are in "
                        "snapshots/HASH; ";
  std::string main;
  std::ifstream(root / "refs" / "main") >> std::setw(64) >> main;
  if (error) {
    message += snapshots.string() + " cannot be listed: " + error.message();
  } else if (names.empty()) {
    message += "there is none: download the model again";
  } else if (std::binary_search(names.begin(), names.end(), main)) {
    message += "give " + (snapshots / main).string() + ", which refs/main names";
  } else if (names.size() == 1) {
    message += "give " + (snapshots / names[0]).string();
  } else {
    message +=
        "give one of its " + std::to_string(names.size()) + " snapshots, such as " + (snapshots / names[0]).string();
  }
  throw CheckpointError(message);
}

}  // namespace anyaccel::llm
