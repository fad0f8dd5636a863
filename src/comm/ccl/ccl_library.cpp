// Opens oneCCL and prepares it for host memory.
#include "comm/ccl/ccl_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>

#include "anyaccel/error.h"
#include "anyaccel/log.h"

namespace anyaccel::comm {
namespace {

constexpr const char* kCclFile = "libccl.so.2";
constexpr const char* kCclPlugin = "ONECCL_LEGACY_CPU";
constexpr const char* kCclHint =
    "install oneCCL 2022 or later (Intel's oneAPI, or the package oneccl of PyPI) and let LD_LIBRARY_PATH name its lib "
    "folder, as its setvars.sh does";

void set_ccl_default(const char* name, const char* value) { setenv(name, value, 0); }

std::unique_ptr<CclLibrary> open_ccl() {
  const char* asked = std::getenv("CCL_PLUGIN");
  if (asked && std::strcmp(asked, kCclPlugin) != 0) {
    throw UnavailableError("the backend ccl cannot be used: CCL_PLUGIN=" + std::string(asked) +
                           " is set, and groups on host memory need the plugin " + kCclPlugin + "; unset CCL_PLUGIN");
  }
  set_ccl_default("CCL_PLUGIN", kCclPlugin);
  set_ccl_default("CCL_ATL_TRANSPORT", "ofi");
  set_ccl_default("CCL_ZE_ENABLE", "0");
  set_ccl_default("FI_HMEM", "system");
  set_ccl_default("CCL_LOG_LEVEL", "error");
  void* handle = dlopen(kCclFile, RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads
  if (!handle) throw UnavailableError("the backend ccl cannot be used: " + std::string(dlerror()) + "; " + kCclHint);

  auto library = std::make_unique<CclLibrary>();
  std::string missing;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  bind(library->get_version, "onecclGetVersion");
  bind(library->get_unique_id, "onecclGetUniqueId");
  bind(library->comm_init_rank, "onecclCommInitRank");
  bind(library->get_error_string, "onecclGetErrorString");
  bind(library->get_last_error, "onecclGetLastError");
  bind(library->all_reduce, "onecclAllReduce");
  bind(library->reduce, "onecclReduce");
  bind(library->reduce_scatter, "onecclReduceScatter");
  bind(library->broadcast, "onecclBroadcast");
  bind(library->all_gather, "onecclAllGather");
  bind(library->all_to_all, "onecclAllToAll");
  if (!missing.empty()) {
    throw UnavailableError("the backend ccl cannot be used: " + std::string(kCclFile) + " lacks " + missing + "; " +
                           kCclHint);
  }
  // The first call loads the plugin.
  const CclStart start;
  int version = 0;
  if (const int result = library->get_version(&version)) {
    const char* more = library->get_last_error(nullptr);
    throw UnavailableError("the backend ccl cannot be used: oneCCL does not load its plugin " +
                           std::string(kCclPlugin) + " (libccl_legacy_cpu.so): onecclGetVersion returned " +
                           std::to_string(result) + (more && *more ? ": " + std::string(more) : "") + "; " + kCclHint);
  }
  library->version =
      std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  log_info("collectives on host memory by oneCCL " + library->version);
  return library;
}

struct {
  std::mutex mutex;
  int users = 0;
  int out = -1;  // a duplicate of standard output while that is redirected
} ccl_output;

}  // namespace

sigset_t block_broken_pipes() noexcept {
  sigset_t pipes, before;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipes, &before);
  return before;
}

CclStart::CclStart() : before_(block_broken_pipes()) {
  const std::lock_guard lock(ccl_output.mutex);
  if (ccl_output.users++ > 0) return;
  std::fflush(stdout);
  ccl_output.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (ccl_output.out >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
}

CclStart::~CclStart() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  const std::lock_guard lock(ccl_output.mutex);
  if (--ccl_output.users > 0 || ccl_output.out < 0) return;
  std::fflush(stdout);
  dup2(ccl_output.out, STDOUT_FILENO);
  close(ccl_output.out);
}

const CclLibrary& CclLibrary::get() {
  // Never destroyed: groups that end with the process still use it.
  static const CclLibrary* const library = open_ccl().release();
  return *library;
}

void CclLibrary::check(int result, const char* function, bool joined) const {
  if (result == 0) [[likely]]
    return;
  std::string text = std::string(function) + " returned " + std::to_string(result);
  if (const char* words = get_error_string(result); words && *words) text += ": " + std::string(words);
  if (const char* more = get_last_error(nullptr); more && *more) text += "; " + std::string(more);
  if (joined) throw CommunicationError(text);
  throw UnavailableError("the backend ccl cannot be used: " + text);
}

std::string ccl_problem() {
  void* const handle = dlopen(kCclFile, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return std::string(dlerror()) + "; " + kCclHint;
  dlclose(handle);
  return "";
}

}  // namespace anyaccel::comm
