// Implements cublaslt.h: NVIDIA's library of matrix products, opened when it is first needed.
#include "accelerators/cuda/libraries/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "accelerators/cuda/libraries/loading.h"
#include "anyaccel/log.h"

namespace anyaccel::cuda {
namespace {

struct Candidate {
  int major;
  const char* file;
};
constexpr Candidate files[] = {{13, "libcublasLt.so.13"}, {12, "libcublasLt.so.12"}, {11, "libcublasLt.so.11"}};

// The first function that is missing; empty if there is none.
std::string bind_functions(CublasLt& library, void* handle) {
  std::string missing;
  const auto bind = [&](auto& function, const char* name, bool needed = true) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function && needed && missing.empty()) missing = name;
  };
  bind(library.create, "cublasLtCreate");
  bind(library.destroy, "cublasLtDestroy");
  bind(library.get_version, "cublasLtGetVersion");
  bind(library.status_name, "cublasLtGetStatusName", false);
  bind(library.status_string, "cublasLtGetStatusString", false);
  bind(library.operation_create, "cublasLtMatmulDescCreate");
  bind(library.operation_destroy, "cublasLtMatmulDescDestroy");
  bind(library.operation_set, "cublasLtMatmulDescSetAttribute");
  bind(library.layout_create, "cublasLtMatrixLayoutCreate");
  bind(library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(library.layout_set, "cublasLtMatrixLayoutSetAttribute");
  bind(library.preference_create, "cublasLtMatmulPreferenceCreate");
  bind(library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(library.heuristics, "cublasLtMatmulAlgoGetHeuristic");
  bind(library.check_algorithm, "cublasLtMatmulAlgoCheck", false);
  bind(library.multiply, "cublasLtMatmul");
  return missing;
}

}  // namespace

std::string CublasLt::description() const {
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100) + " (" + path + ")";
}

std::string CublasLt::status_text(LtStatus status) const {
  const char* name = status_name ? status_name(status) : nullptr;
  const char* words = status_string ? status_string(status) : nullptr;
  return std::string(name ? name : "status") + " (" + std::to_string(status) + ")" +
         (words ? std::string(": ") + words : "");
}

std::vector<std::string> cublaslt_files(int driver_version) {
  const int driver_major = driver_version / 1000;
  std::vector<std::string> order;
  for (const Candidate& c : files) {
    if (driver_major == 0 || c.major <= driver_major) order.emplace_back(c.file);
  }
  for (auto c = std::rbegin(files); c != std::rend(files); ++c) {
    if (driver_major != 0 && c->major > driver_major) order.emplace_back(c->file);
  }
  return order;
}

std::unique_ptr<CublasLt> open_cublaslt(int driver_version, std::string& problem) {
  std::string tried;
  // Each name is searched in all folders before the next name: the right version in a late folder is better than a
  // wrong one in an early folder.
  for (const std::string& file : cublaslt_files(driver_version)) {
    std::string tried_this;
    void* handle = open_library(Runtime::cuda, {file}, tried_this);
    if (!handle) {
      tried += (tried.empty() ? "" : "; ") + tried_this;
      continue;
    }
    auto library = std::make_unique<CublasLt>();
    library->path = library_path(handle);
    const std::string missing = bind_functions(*library, handle);
    if (!missing.empty()) {
      tried += (tried.empty() ? "" : "; ") + library->path + " lacks " + missing;
      dlclose(handle);
      continue;
    }
    library->version = library->get_version();
    return library;
  }
  problem = "no cuBLASLt: " + tried;
  return nullptr;
}

const CublasLt* cublaslt(int driver_version, std::string& problem) {
  struct Opened {
    std::string problem;
    std::unique_ptr<CublasLt> library;
    explicit Opened(int version) : library(open_cublaslt(version, problem)) {
      log_info("cuda: " + (library ? "large products by " + library->description() : problem));
    }
  };
  // Never destroyed: accelerators that end with the process still use it.
  static const Opened& opened = *new Opened(driver_version);
  problem = opened.problem;
  return opened.library.get();
}

}  // namespace anyaccel::cuda
