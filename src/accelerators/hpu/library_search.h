// Defines the search path for Synapse's library.
#pragma once

#include "accelerators/queue_runtime/library.h"

namespace anyaccel::hpu {

inline constexpr const char* library_name = "libSynapse.so";

inline const queue_runtime::LibrarySearch& library_search() {
  static const queue_runtime::LibrarySearch search{"ANYACCEL_HPU_LIBRARY_PATH", {}, "/usr/lib/habanalabs", "stubs"};
  return search;
}

}  // namespace anyaccel::hpu
