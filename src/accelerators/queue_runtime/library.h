// Opening a vendor's libraries at run time.
#pragma once

#include <string>
#include <vector>

namespace anyaccel::queue_runtime {

// The places where an accelerator's libraries are searched for, in this order, before the loader's own search.
struct LibrarySearch {
  const char* path_variable;                // folders, separated by colons: "ANYACCEL_NPU_LIBRARY_PATH"
  std::vector<const char*> home_variables;  // the vendor's variables; lib64, lib and the folder itself are searched
  const char* default_home;                 // default installation folders; searched likewise
  // Folders of this name contain stub libraries for linking, and nothing below them is opened.
  const char* stub_folder;
};

struct OpenedLibrary {
  void* handle = nullptr;  // null: there is none
  std::string path;
  std::string tried;  // what was looked for and where, if there is none
};

// Opens the first of `names` that exists. Never closed: the vendors' libraries start threads and register handlers.
OpenedLibrary open_library(const LibrarySearch& search, const std::vector<std::string>& names);

// The value of a variable; empty where it is not set.
std::string variable(const char* name);

// Binds the functions of a library, and remembers the first one that is missing.
class Binder {
 public:
  explicit Binder(void* handle) : handle_(handle) {}
  // Both leave `function` null where the library has no such function.
  template <class Function>
  void required(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(find(name));
    if (!function && missing_.empty()) missing_ = name;
  }
  template <class Function>
  void optional(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(find(name));
  }
  const std::string& missing() const noexcept { return missing_; }  // empty: none of the required ones

 private:
  void* find(const char* name) const;

  void* handle_;
  std::string missing_;
};

}  // namespace anyaccel::queue_runtime
