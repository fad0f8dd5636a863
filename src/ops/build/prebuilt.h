// Finds and writes host ops that are compiled ahead of time for the installed package:
// lib/anyaccel/ops/<op>-<target>.so. Each has a description of what it was built from, so that a library is never used
// for sources or flags other than its own.
#pragma once

#include <optional>
#include <string>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// Returns the prebuilt library of a plan; nothing if there is none, or if it was built from something else.
std::optional<std::string> find_prebuilt(const BuildPlan& plan);

// Compiles the plan into `folder`, which is created if necessary. Returns the library. Throws like compile_library, and
// BuildError if the folder is not writable.
std::string write_prebuilt(const BuildPlan& plan, const std::string& folder);

}  // namespace anyaccel::ops
