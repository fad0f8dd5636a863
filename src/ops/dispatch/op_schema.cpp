// Generates the schema and the check of every op from the rows of runtime/ops/op_list.h.
#include "ops/dispatch/op_schema.h"

#include <array>

#include "ops/dispatch/op_checker.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::ops {
namespace {

// -- The terms in which runtime/ops/op_list.h describes tensors and rules.

constexpr uint32_t bit(aa_dtype t) { return 1u << t; }
constexpr uint32_t kFloat = bit(AA_DTYPE_F32) | bit(AA_DTYPE_BF16) | bit(AA_DTYPE_F16);
constexpr uint32_t kIndex = bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64);
constexpr uint32_t kF32 = bit(AA_DTYPE_F32);
constexpr uint32_t kI32 = bit(AA_DTYPE_I32);
constexpr uint32_t kI64 = bit(AA_DTYPE_I64);
constexpr uint32_t kU8 = bit(AA_DTYPE_U8);

// The numbers of tensors that one may be.
template <class... Numbers>
constexpr uint32_t over(Numbers... numbers) {
  return ((1u << numbers) | ...);
}

constexpr TensorSchema out(const char* name, uint32_t dtypes, const char* shape, uint32_t in_place = 0) {
  return {name, Role::Out, false, dtypes, shape, in_place};
}
constexpr TensorSchema in(const char* name, uint32_t dtypes, const char* shape) {
  return {name, Role::In, false, dtypes, shape};
}
constexpr TensorSchema in_optional(const char* name, uint32_t dtypes, const char* shape) {
  return {name, Role::In, true, dtypes, shape};
}
constexpr TensorSchema inout(const char* name, uint32_t dtypes, const char* shape) {
  return {name, Role::InOut, false, dtypes, shape};
}
constexpr TensorSchema inout_optional(const char* name, uint32_t dtypes, const char* shape, uint32_t in_place = 0) {
  return {name, Role::InOut, true, dtypes, shape, in_place};
}

void no_rules() {}

// -- The tensors and rules of each op.

template <Op op>
struct Row;

#define ANYACCEL_OP_ROW(op, name, parameters, rules, ...)                                     \
  template <>                                                                                 \
  struct Row<Op::op> {                                                                        \
    using Params = parameters;                                                                \
    static constexpr auto kTensors = std::to_array<TensorSchema>({__VA_ARGS__});              \
    template <class P>                                                                        \
    static void check_rules([[maybe_unused]] const Checker& c, [[maybe_unused]] const P& p) { \
      rules;                                                                                  \
    }                                                                                         \
  };
ANYACCEL_OPS(ANYACCEL_OP_ROW)
ANYACCEL_FUSED_OPS(ANYACCEL_OP_ROW)
#undef ANYACCEL_OP_ROW

extern const std::array<OpSchema, op_count> kSchemas;

template <Op op>
void check_as(const aa_op_call& call) {
  static constexpr auto& kTensors = Row<op>::kTensors;
  // Inputs precede outputs, so that error messages refer to what the caller passed in: "to match the last dimension of
  // "x"".
  static constexpr auto kOrder = [] {
    std::array<char, kTensors.size() + 1> order{};
    size_t n = 0;
    for (Role role : {Role::In, Role::InOut, Role::Out}) {
      for (size_t i = 0; i < kTensors.size(); ++i) {
        if (kTensors[i].role == role) order[n++] = static_cast<char>('0' + i);
      }
    }
    return order;
  }();
  Checker checker(kSchemas[static_cast<size_t>(op)], call);
  // A call of "linear_multi" may be shorter than its table, the number of heads of rope is better taken from "q" than
  // from "cos", and the products of heads and head size need those two first.
  constexpr bool in_table_order =
      op == Op::LinearMulti || op == Op::Rope || op == Op::NormQkvRope || op == Op::NormQuantizedQkvRope;
  checker.run(in_table_order ? nullptr : kOrder.data());
  using Params = typename Row<op>::Params;
  if constexpr (std::is_void_v<Params>) {
    Row<op>::check_rules(checker, nullptr);
  } else {
    Row<op>::check_rules(checker, checker.params<Params>());
  }
  check_memory(kSchemas[static_cast<size_t>(op)], call);
}

template <Op op>
constexpr OpSchema schema() {
  using Params = typename Row<op>::Params;
  uint32_t params_size = 0;
  if constexpr (!std::is_void_v<Params>) params_size = sizeof(Params);
  const auto& tensors = Row<op>::kTensors;
  uint32_t written = 0;
  for (size_t i = 0; i < tensors.size(); ++i) written |= (tensors[i].role == Role::In ? 0u : 1u) << i;
  // "linear_multi" takes 1 to 4 weights.
  const uint32_t min_tensors = op == Op::LinearMulti ? 4 : static_cast<uint32_t>(tensors.size());
  return {op_name(op), tensors, min_tensors, params_size, written, &check_as<op>};
}

#define ANYACCEL_OP_SCHEMA(op, ...) schema<Op::op>(),
constexpr const std::array<OpSchema, op_count> kSchemas = {ANYACCEL_OPS(ANYACCEL_OP_SCHEMA)
                                                               ANYACCEL_FUSED_OPS(ANYACCEL_OP_SCHEMA)};
#undef ANYACCEL_OP_SCHEMA

}  // namespace

std::span<const OpSchema> op_schemas() { return kSchemas; }

const OpSchema* find_op_schema(std::string_view name) {
  for (const OpSchema& schema : kSchemas) {
    if (schema.name == name) return &schema;
  }
  return nullptr;
}

}  // namespace anyaccel::ops
