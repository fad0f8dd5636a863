// Creates structs of the plugin interface, zeroed and with struct_size set, as every writer of such a struct must.
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
