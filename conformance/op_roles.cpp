// Implements op_roles.h from the rows of runtime/ops/op_list.h.
#include "conformance/op_roles.h"

#include <array>

#include "runtime/ops/op_list.h"

namespace anyaccel::conformance {
namespace {

// The terms of the rows. What a tensor may look like does not matter here.
enum Dtypes { kFloat, kIndex, kF32, kI32, kI64, kU8, any_dtype };

template <class... Numbers>
constexpr uint32_t over(Numbers... numbers) {
  return ((1u << numbers) | ...);
}
constexpr TensorRole out(const char* name, Dtypes /*dtypes*/, const char* /*shape*/, uint32_t in_place = 0) {
  return {name, true, in_place};
}
constexpr TensorRole in(const char* name, Dtypes /*dtypes*/, const char* /*shape*/) { return {name, false}; }
constexpr TensorRole in_optional(const char* name, Dtypes dtypes, const char* shape) { return in(name, dtypes, shape); }
constexpr TensorRole inout(const char* name, Dtypes dtypes, const char* shape) { return out(name, dtypes, shape); }
constexpr TensorRole inout_optional(const char* name, Dtypes dtypes, const char* shape, uint32_t in_place = 0) {
  return out(name, dtypes, shape, in_place);
}

}  // namespace

std::span<const TensorRole> roles_of(std::string_view op) {
#define ANYACCEL_ROLES(number, name, parameters, rules, ...)                \
  if (op == #name) {                                                        \
    static constexpr auto roles = std::to_array<TensorRole>({__VA_ARGS__}); \
    return roles;                                                           \
  }
  ANYACCEL_OPS(ANYACCEL_ROLES)
  ANYACCEL_FUSED_OPS(ANYACCEL_ROLES)
#undef ANYACCEL_ROLES
#define ANYACCEL_ROLES_BY_ROW(number, name, base, base_name) \
  if (op == #name) return roles_of(#base_name);
  ANYACCEL_OPS_BY_ROW(ANYACCEL_ROLES_BY_ROW)
#undef ANYACCEL_ROLES_BY_ROW
  return {};
}

}  // namespace anyaccel::conformance
