// Reads ANYACCEL_LAYERS specifications and stacks the layers.
#include "runtime/layers/layers.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "base/text/text.h"
#include "runtime/layers/memories.h"
#include "runtime/layers/trace.h"
#include "runtime/layers/validate.h"

namespace anyaccel {
namespace {

using Wrap = const abi::DriverCalls* (*)(const abi::DriverCalls*);

std::atomic<OpValidator> current_validator{nullptr};

Wrap find_layer(std::string_view name) {
  if (name == "validate") return layers::wrap_validate;
  if (name == "trace") return layers::wrap_trace;
  throw InvalidArgument("ANYACCEL_LAYERS: there is no layer \"" + std::string(name) +
                        "\"; known are validate and trace");
}

std::vector<Wrap> parse(std::string_view spec) {
  std::vector<Wrap> wraps;
  for (const std::string& name : split_list(spec)) wraps.push_back(find_layer(name));
  return wraps;
}

}  // namespace

const abi::DriverCalls* apply_layers(const abi::DriverCalls* table, std::string_view spec) {
  const std::vector<Wrap> wraps = parse(spec);
  for (auto wrap = wraps.rbegin(); wrap != wraps.rend(); ++wrap) table = (*wrap)(table);
  return table;
}

const abi::DriverCalls* apply_needed_layers(const abi::DriverCalls* table) {
  if (table->flags & AA_DRIVER_WANTS_MEMORY) table = layers::wrap_memories(table);
  const char* spec = std::getenv("ANYACCEL_LAYERS");
  return spec ? apply_layers(table, spec) : table;
}

void check_layers_variable() {
  if (const char* spec = std::getenv("ANYACCEL_LAYERS")) parse(spec);
}

void set_op_validator(OpValidator validator) noexcept { current_validator.store(validator); }
OpValidator op_validator() noexcept { return current_validator.load(); }

}  // namespace anyaccel
