// Makes structs of the plugin interface that are zeroed and carry their size, as every writer of one must.
#pragma once

#include <cstdint>

namespace anyaccel::abi {

template <class Struct>
constexpr Struct sized() noexcept {
  Struct value{};
  value.struct_size = sizeof(Struct);
  return value;
}

}  // namespace anyaccel::abi
