// Implements fallback.h, which reads ANYACCEL_FALLBACK.
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

}  // namespace anyaccel::ops
