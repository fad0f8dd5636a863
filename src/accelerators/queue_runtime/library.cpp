// Implements library.h: opening a vendor's libraries at run time.
#include "accelerators/queue_runtime/library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

namespace anyaccel::queue_runtime {
namespace {

void add(std::vector<std::string>& folders, std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
    folders.push_back(std::move(folder));
}

std::vector<std::string> folders_of(const LibrarySearch& search) {
  std::vector<std::string> folders;
  std::string folder;
  for (const char c : variable(search.path_variable) + ":") {
    if (c != ':') {
      folder += c;
      continue;
    }
    add(folders, std::move(folder));
    folder.clear();
  }
  std::vector<std::string> homes;
  for (const char* home : search.home_variables) add(homes, variable(home));
  if (homes.empty()) add(homes, search.default_home);  // a named installation is the only one searched
  for (const std::string& home : homes) {
    add(folders, home + "/lib64");
    add(folders, home + "/lib");
    add(folders, home);
  }
  return folders;
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

bool is_below(const std::string& path, const char* folder) {
  const std::string part = std::string("/") + folder + "/";
  char resolved[PATH_MAX];
  return path.find(part) != std::string::npos ||
         (realpath(path.c_str(), resolved) && std::string(resolved).find(part) != std::string::npos);
}

}  // namespace

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

OpenedLibrary open_library(const LibrarySearch& search, const std::vector<std::string>& names) {
  OpenedLibrary opened;
  const std::vector<std::string> folders = folders_of(search);
  std::string problems;
  // The loader searches for a name without a folder.
  const auto open = [&](const std::string& file) {
    const bool bare = file.find('/') == std::string::npos;
    if (!bare && access(file.c_str(), F_OK) != 0) return false;
    dlerror();
    void* handle = bare || !is_below(file, search.stub_folder) ? dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) {
      const char* why = dlerror();
      if (!bare)
        problems += "; " + file + (why ? std::string(" cannot be opened (") + why + ")" : " is for linking only");
      return false;
    }
    opened.path = path_of(handle);
    if (is_below(opened.path, search.stub_folder)) {
      problems += "; " + opened.path + " is for linking only";
      dlclose(handle);
      return false;
    }
    opened.handle = handle;
    return true;
  };
  for (const std::string& name : names) {
    for (const std::string& folder : folders) {
      if (open(folder + "/" + name)) return opened;
    }
    if (open(name)) return opened;
  }
  opened.path.clear();
  opened.tried = "looked for ";
  for (size_t i = 0; i < names.size(); ++i) opened.tried += (i ? ", " : "") + names[i];
  opened.tried += " in ";
  for (const std::string& folder : folders) opened.tried += folder + ", ";
  opened.tried += "LD_LIBRARY_PATH and the system's library folders" + problems;
  return opened;
}

void* Binder::find(const char* name) const { return dlsym(handle_, name); }

}  // namespace anyaccel::queue_runtime
