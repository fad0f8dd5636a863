// Defines the search path for Neuware's libraries.
#pragma once

#include "accelerators/queue_runtime/library.h"

namespace anyaccel::mlu {

inline const queue_runtime::LibrarySearch& library_search() {
  static const queue_runtime::LibrarySearch search{
      "ANYACCEL_MLU_LIBRARY_PATH", {"NEUWARE_HOME"}, "/usr/local/neuware", "stubs"};
  return search;
}

}  // namespace anyaccel::mlu
