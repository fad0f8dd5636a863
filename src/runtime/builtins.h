// Lists the parts of this build. Declared here so that the runtime names no accelerator; the lists are in
// src/accelerators/builtins.cpp.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "anyaccel/abi/driver.h"
#include "anyaccel/op_builder.h"

namespace anyaccel {

struct BuiltinDriver {
  const char* name;  // what DS_ACCELERATOR names
  aa_driver_query_fn query;
  int32_t priority;       // as aa_driver::priority, where these numbers are listed for vendors
  const char* yields_to;  // automatic detection prefers that one when it is usable; null: none
  bool automatic;         // considered by automatic detection, when DS_ACCELERATOR is not set
  const char* needs;      // what a machine must have for the driver, for the text of an error; "" for none
};

// In detection order.
std::span<const BuiltinDriver> builtin_drivers();

struct BuiltinOpBuilder {
  const char* name;       // "InferenceBuilder"
  const char* op_name;    // "transformer_inference"
  const char* build_var;  // "DS_BUILD_TRANSFORMER_INFERENCE"
  // Null: the name is known, but no accelerator implements it yet.
  std::unique_ptr<OpBuilder> (*make)(Accelerator& accelerator);
};

std::span<const BuiltinOpBuilder> builtin_op_builders();
// Returns the entry of that name, or null.
const BuiltinOpBuilder* find_builtin_op_builder(std::string_view name);

// An environment variable that this build reads.
struct EnvironmentVariable {
  const char* name;
  // Called when the variable is set: throws InvalidArgument for a value that is not allowed, or warns. Null: any text
  // is allowed, or the code that uses the value checks it.
  void (*check)();
};

std::span<const EnvironmentVariable> environment_variables();

}  // namespace anyaccel
