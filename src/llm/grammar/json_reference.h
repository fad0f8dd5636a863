// Finds what a $ref of a JSON Schema names: a JSON pointer (RFC 6901) in a URI's fragment.
#pragma once

#include "base/text/json.h"

namespace anyaccel::llm {

// Returns the part of the document of `root` that the string `reference` names ("#/$defs/name"). Throws CheckpointError if there
// is none, and for references to other documents.
JsonRef json_referenced(const JsonRef& root, const JsonRef& reference);

}  // namespace anyaccel::llm
