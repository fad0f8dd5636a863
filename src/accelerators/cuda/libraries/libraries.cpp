// Lists the places in which the vendors' libraries are searched for (platform.h).
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "accelerators/cuda/libraries/loading.h"
#include "accelerators/cuda/platform/platform.h"

namespace anyaccel::cuda {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void add(std::vector<std::string>& folders, std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
    folders.push_back(std::move(folder));
}

std::vector<std::string> asked_for_folders() {
  std::vector<std::string> folders;
  std::string folder;
  for (const char c : variable(library_path_variable) + ":") {
    if (c != ':') {
      folder += c;
      continue;
    }
    add(folders, std::move(folder));
    folder.clear();
  }
  return folders;
}

// NVIDIA's driver installs these two; a toolkit's files of these names are stubs for linking.
bool belongs_to_driver(const std::string& name) {
  return name.starts_with("libcuda.so") || name.starts_with("libnvidia-ml.so");
}

std::vector<std::string> installation_folders(Runtime runtime, const std::string& name) {
  std::vector<std::string> folders;
  if (runtime == Runtime::hip) {
    for (const char* home : {"ROCM_PATH", "HIP_PATH"}) {
      if (const std::string path = variable(home); !path.empty()) add(folders, path + "/lib");
    }
    if (folders.empty()) add(folders, "/opt/rocm/lib");
  } else if (!belongs_to_driver(name)) {
    for (const char* home : {"CUDA_HOME", "CUDA_PATH"}) {
      const std::string path = variable(home);
      if (path.empty()) continue;
      add(folders, path + "/lib64");
      add(folders, path + "/lib");
    }
    // As with nvcc, a toolkit that was named explicitly is the only one searched.
    if (folders.empty()) add(folders, "/usr/local/cuda/lib64");
  }
  return folders;
}

// Folders that hold drivers' libraries and are unknown to the loader: WSL, and containers with an old runtime.
std::vector<std::string> last_folders(Runtime runtime, const std::string& name) {
  if (runtime != Runtime::cuda || !belongs_to_driver(name)) return {};
  return {"/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64"};
}

bool below_stubs(const std::string& path) {
  if (path.find("/stubs/") != std::string::npos) return true;
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) && std::string(resolved).find("/stubs/") != std::string::npos;
}

class Search {
 public:
  // A bare name is looked for by the loader.
  void* open(const std::string& file) {
    const bool bare = file.find('/') == std::string::npos;
    if (!bare && access(file.c_str(), F_OK) != 0) return nullptr;
    if (!bare && below_stubs(file)) {
      refuse(file);
      return nullptr;
    }
    dlerror();
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = dlerror();
      const std::string text = why ? why : "no reason given";
      // The loader's message for a file that does not exist anywhere is the same.
      if (!bare || text.find("No such file") == std::string::npos || !text.starts_with(file)) {
        problems_ += "; " + file + " cannot be opened (" + text + ")";
      }
      return nullptr;
    }
    // A stub would otherwise be found again under its name by everyone who opens the real library.
    if (const std::string path = library_path(handle); bare && below_stubs(path)) {
      dlclose(handle);
      refuse(path);
      return nullptr;
    }
    return handle;
  }
  const std::string& problems() const noexcept { return problems_; }

 private:
  void refuse(const std::string& path) {
    if (problems_.find(path) == std::string::npos) {
      problems_ += "; " + path + " was passed over: it is the CUDA toolkit's stub, which does nothing but link";
    }
  }
  std::string problems_;
};

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

}  // namespace

std::string library_path(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

void* open_library(Runtime runtime, const std::vector<std::string>& names, std::string& tried) {
  const std::vector<std::string> asked_for = asked_for_folders();
  Search search;
  for (const std::string& folder : asked_for) {
    for (const std::string& name : names) {
      if (void* handle = search.open(folder + "/" + name)) return handle;
    }
  }
  std::vector<std::string> installed;
  for (const std::string& name : names) {
    for (const std::string& folder : installation_folders(runtime, name)) {
      add(installed, folder);
      if (void* handle = search.open(folder + "/" + name)) return handle;
    }
    if (void* handle = search.open(name)) return handle;
    for (const std::string& folder : last_folders(runtime, name)) {
      if (void* handle = search.open(folder + "/" + name)) return handle;
    }
  }
  tried = "looked for " + joined(names) + " in ";
  if (!asked_for.empty()) tried += joined(asked_for) + " (" + library_path_variable + "), ";
  if (!installed.empty()) tried += joined(installed) + ", ";
  tried += "LD_LIBRARY_PATH and the system's library folders" + search.problems();
  return nullptr;
}

}  // namespace anyaccel::cuda
