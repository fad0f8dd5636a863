// Implements fallback.h.
#include "ops/dispatch/fallback.h"

#include <cstdlib>
#include <string>

#include "anyaccel/error.h"

namespace anyaccel::ops {

bool fallback_is_error() {
  const char* mode = std::getenv("ANYACCEL_FALLBACK");
  if (!mode || !*mode) return false;
  const std::string text = mode;
  if (text != "error" && text != "cpu") {
    throw InvalidArgument("ANYACCEL_FALLBACK must be cpu (the default) or error, not \"" + text + "\"");
  }
  return text == "error";
}

void check_not_capturing(Accelerator& accelerator, int device, const std::string& op_name) {
  if (!accelerator.is_current_stream_capturing(device)) return;
  throw InvalidArgument(op_name + ": the current stream of " + accelerator.device_name(device) +
                            " captures a graph, and this call runs on the host, which a graph does not record; call it "
                            "outside of the capture",
                        AA_FAILED_PRECONDITION);
}

}  // namespace anyaccel::ops
