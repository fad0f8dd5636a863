// Defines the search path for Tecorigin's libraries.
#pragma once

#include "accelerators/queue_runtime/library.h"

namespace anyaccel::sdaa {

inline const queue_runtime::LibrarySearch& library_search() {
  static const queue_runtime::LibrarySearch search{
      "ANYACCEL_SDAA_LIBRARY_PATH", {"SDAA_ROOT", "TCCL_ROOT"}, "/opt/tecoai", "stubs"};
  return search;
}

}  // namespace anyaccel::sdaa
