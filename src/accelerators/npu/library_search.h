// Defines the search path for CANN's libraries.
#pragma once

#include "accelerators/queue_runtime/library.h"

namespace anyaccel::npu {

// CANN's installation variables: the set_env.sh of newer releases sets both, that of older releases only the second.
inline constexpr const char* home_variables[] = {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"};

inline const queue_runtime::LibrarySearch& library_search() {
  static const queue_runtime::LibrarySearch search{"ANYACCEL_NPU_LIBRARY_PATH",
                                                   {std::begin(home_variables), std::end(home_variables)},
                                                   "/usr/local/Ascend/ascend-toolkit/latest",
                                                   "devlib"};
  return search;
}

}  // namespace anyaccel::npu
