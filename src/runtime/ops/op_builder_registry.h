// Finds op builders by name.
#pragma once

#include <memory>
#include <string_view>

#include "anyaccel/op_builder.h"

namespace anyaccel {

bool is_known_op_builder(std::string_view builder_name);

// Null for an unknown name. For a known one that does not exist yet, a builder whose load() says so.
std::unique_ptr<OpBuilder> make_op_builder(std::string_view builder_name, Accelerator& accelerator);

}  // namespace anyaccel
