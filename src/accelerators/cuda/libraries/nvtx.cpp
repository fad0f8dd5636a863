// Implements nvtx.h: named ranges in NVIDIA's profilers, by NVTX version 3.
#include "accelerators/cuda/libraries/nvtx.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::cuda {
namespace {

using namespace nvtx;

// The functions that the profiler installed; null for events that it does not want. NVTX numbers them from 1 in each of
// its modules. Functions that are never called have a slot too, because a profiler fills all tables that it knows.
Function functions[module_count][most_functions];
// NVTX hands out pointers to its pointers.
Function* places[module_count][most_functions + 1];

const Function* const core = functions[module_core];
const Function* const core2 = functions[module_core2];

int module_functions(int module, Function*** table, unsigned* size) {
  if (module <= 0 || module >= module_count) return 0;
  if (table) *table = places[module];
  if (size) *size = module_sizes[module];
  return 1;
}

void set_injection_version(uint32_t) {}

const void* export_table(uint32_t id) {
  static const CallbacksTable callbacks{sizeof(CallbacksTable), module_functions};
  static const VersionTable version_table{sizeof(VersionTable), version, 0, set_injection_version};
  if (id == export_callbacks) return &callbacks;
  if (id == export_version) return &version_table;
  return nullptr;
}

template <class Signature>
Signature* function(const Function* functions, uint32_t place) {
  return reinterpret_cast<Signature*>(functions[place]);
}

bool attach() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path) return false;
  for (int module = 1; module < module_count; ++module) {
    for (unsigned i = 1; i < module_sizes[module]; ++i) places[module][i] = &functions[module][i];
  }
  void* library = dlopen(path, RTLD_LAZY);
  std::string problem;
  if (!library) {
    const char* why = dlerror();
    problem = why ? why : "it cannot be opened";
  } else {
    const auto initialize = reinterpret_cast<InitializeInjection>(dlsym(library, "InitializeInjectionNvtx2"));
    if (!initialize)
      problem = "it has no function InitializeInjectionNvtx2";
    else if (initialize(export_table) == 0)
      problem = "its InitializeInjectionNvtx2 failed";
  }
  if (problem.empty()) return true;
  abi::log(AA_LOG_WARNING, std::string("profiler ranges go nowhere: NVTX_INJECTION64_PATH=") + path + ": " + problem);
  return false;
}

EventAttributes attributes(const char* message, uint32_t category) {
  EventAttributes event{};
  event.version = version;
  event.size = sizeof(event);
  event.category = category;
  event.message_type = message_ascii;
  event.message.ascii = message;
  return event;
}

}  // namespace

NvtxRanges::NvtxRanges() {
  static const bool attached = attach();
  attached_ = attached;
}

std::pair<Domain, uint32_t> NvtxRanges::find(const char* domain, const char* category) {
  {
    const std::shared_lock lock(mutex_);
    const auto known = domains_.find(std::string_view(domain));
    if (known != domains_.end()) {
      if (!*category) return {known->second.handle, 0};
      const auto number = known->second.categories.find(std::string_view(category));
      if (number != known->second.categories.end()) return {known->second.handle, number->second};
    }
  }
  const std::scoped_lock lock(mutex_);
  const auto [place, made] = domains_.try_emplace(domain);
  KnownDomain& entry = place->second;
  if (made && *domain) {
    if (auto* create = function<Domain(const char*)>(core2, core2_domain_create)) entry.handle = create(domain);
  }
  if (!*category) return {entry.handle, 0};
  const auto [numbered, is_new] =
      entry.categories.try_emplace(category, static_cast<uint32_t>(entry.categories.size() + 1));
  if (is_new) {
    if (*domain) {
      if (auto* name = function<void(Domain, uint32_t, const char*)>(core2, core2_name_category))
        name(entry.handle, numbered->second, category);
    } else if (auto* name = function<void(uint32_t, const char*)>(core, core_name_category)) {
      name(numbered->second, category);
    }
  }
  return {entry.handle, numbered->second};
}

void NvtxRanges::push_attached(const char* message, const char* domain, const char* category) {
  const std::pair<Domain, uint32_t> place = find(domain, category);
  const EventAttributes event = attributes(message, place.second);
  if (*domain) {
    if (auto* push = function<int(Domain, const EventAttributes*)>(core2, core2_range_push)) push(place.first, &event);
  } else if (auto* push = function<int(const EventAttributes*)>(core, core_range_push)) {
    push(&event);
  }
}

void NvtxRanges::pop_attached(const char* domain) {
  if (*domain) {
    if (auto* pop = function<int(Domain)>(core2, core2_range_pop)) pop(find(domain, "").first);
  } else if (auto* pop = function<int()>(core, core_range_pop)) {
    pop();
  }
}

void NvtxRanges::mark_attached(const char* message, const char* domain) {
  const std::pair<Domain, uint32_t> place = find(domain, "");
  const EventAttributes event = attributes(message, 0);
  if (*domain) {
    if (auto* mark = function<void(Domain, const EventAttributes*)>(core2, core2_mark)) mark(place.first, &event);
  } else if (auto* mark = function<void(const EventAttributes*)>(core, core_mark)) {
    mark(&event);
  }
}

}  // namespace anyaccel::cuda
