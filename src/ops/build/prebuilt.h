// Host ops that were compiled ahead and lie in the installed package: lib/anyaccel/ops/<op>-<target>.so, each with a
// description that says what it was made of, so that a library never stands for other sources or flags than its own.
#pragma once

#include <optional>
#include <string>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// The prebuilt library of a plan; nothing when there is none, or it was made of something else.
std::optional<std::string> find_prebuilt(const BuildPlan& plan);

// Compiles the plan into `folder` (made if need be). Returns the library. Throws as compile_library, and BuildError when
// the folder cannot be written.
std::string write_prebuilt(const BuildPlan& plan, const std::string& folder);

}  // namespace anyaccel::ops
