// The op builders and the compiler that a driver brings (abi/op_builders.h), checked and with absolute paths.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/accelerator.h"
#include "anyaccel/op_builder.h"

namespace anyaccel {

class DriverAccelerator;

// An entry of aa_driver::op_builders. Paths are absolute.
struct DriverOpBuilder {
  std::string name;
  std::string driver;  // the accelerator whose driver brings it
  std::string folder;
  std::string language;  // "" for host ops
  std::string library;   // "" for none
  std::vector<std::string> sources;
  std::vector<std::string> include_dirs;
  std::vector<std::string> compile_flags;
  std::vector<std::string> link_flags;
};

struct DriverBuilds {
  std::vector<DriverOpBuilder> builders;
  std::optional<BuildExtension> toolchain;  // nothing: the host's
  std::string ops_dir;                      // "": the host's

  const DriverOpBuilder* find(std::string_view builder_name) const noexcept;
};

// Entries that cannot be used are left out, after a warning that names the driver and says why. `origin` is the plugin's
// file, or "built in".
DriverBuilds read_driver_builds(const abi::DriverCalls& driver, const std::string& origin);

// Returns how host ops are compiled if the driver does not say.
BuildExtension host_build_extension();

// Null, after a warning, for a name whose library is part of this one. Defined with the built-ins.
std::unique_ptr<OpBuilder> make_driver_op_builder(const DriverOpBuilder& builder, DriverAccelerator& accelerator);

}  // namespace anyaccel
