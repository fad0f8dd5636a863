// Finds the files of plugins in the folders where they are installed, and where ANYACCEL_PLUGIN_PATH points.
#include "runtime/driver/plugin_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "base/files/install_paths.h"
#include "base/files/trusted_path.h"

namespace anyaccel {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// The user's folder, then the installation's. (The XDG base directories define a variable for architecture-independent
// data, but none for libraries: ~/.local/lib is fixed.)
std::vector<std::string> standard_folders() {
  std::vector<std::string> folders;
  const char* home = variable("HOME");
  if (home && *home == '/') folders.push_back(std::string(home) + "/.local/lib/anyaccel/plugins");
  folders.push_back(install_plugin_dir());
  return folders;
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Lists the libraries in a folder, sorted by name.
std::vector<std::string> libraries_of(const std::string& folder, std::error_code& error) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".so") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Lists the libraries in a folder, unless another user could put one there.
void add_folder(const std::string& folder, std::vector<std::string>& files, std::vector<std::string>& errors) {
  const TrustedPath opened = open_trusted_folder(folder, Trust::program);
  const std::string asked = "plugin folder \"" + folder + "\": ";
  if (opened.state == TrustedPath::State::refused) {
    errors.push_back(asked + "nothing is loaded from it, because " + opened.reason +
                     ", so that another user could put code there. Cure: " + opened.cure);
    return;
  }
  if (!opened.ok()) {
    errors.push_back(asked + opened.reason);
    return;
  }
  std::error_code error;
  const std::vector<std::string> found = libraries_of(folder, error);
  if (error) errors.push_back(asked + error.message());
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

std::string plugin_places() {
  const char* path = variable("ANYACCEL_PLUGIN_PATH");
  std::string text = "Plugins are looked for in ANYACCEL_PLUGIN_PATH (";
  text += path ? "\"" + std::string(path) + "\")" : "not set)";
  for (const std::string& folder : standard_folders()) {
    std::error_code error;
    const size_t count = libraries_of(folder, error).size();
    text += ", " + folder + " (" +
            (exists(folder) ? std::to_string(count) + (count == 1 ? " file" : " files") : "not there") + ")";
  }
  return text;
}

std::vector<std::string> find_plugin_files(std::vector<std::string>& errors) {
  std::vector<std::string> files;
  if (const char* path = variable("ANYACCEL_PLUGIN_PATH")) {
    std::stringstream parts(path);
    for (std::string part; std::getline(parts, part, ':');) {
      if (part.empty()) continue;
      std::error_code error;
      if (std::filesystem::is_directory(part, error)) {
        add_folder(part, files, errors);
      } else if (exists(part)) {
        files.push_back(part);
      } else {
        errors.push_back("plugin \"" + part + "\": there is no such file or folder; check ANYACCEL_PLUGIN_PATH");
      }
    }
  }
  // If the folder does not exist, there is no reason to warn about its parents.
  for (const std::string& folder : standard_folders()) {
    if (exists(folder)) add_folder(folder, files, errors);
  }
  std::set<std::pair<dev_t, ino_t>> seen;
  std::erase_if(files, [&](const std::string& file) {
    struct stat status;
    return stat(file.c_str(), &status) == 0 && !seen.emplace(status.st_dev, status.st_ino).second;
  });
  return files;
}

}  // namespace anyaccel
