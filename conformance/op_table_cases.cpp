// Cases of the "ops" extension as such: its answers for ops that it does not have.
#include <limits>
#include <span>

#include "anyaccel/abi/ops.h"
#include "conformance/context.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::conformance {
namespace op_table_group {
namespace {

abi::Calls<aa_ops_table> ops(const Context& c) { return c.extension<aa_ops_table>(AA_OPS_EXTENSION, AA_OPS_VERSION); }

void unknown_op_is_not_found(const Context& c) {
  int32_t op = -77;
  c.error(ops(c).find(c.instance, "no_such_op", &op), {AA_NOT_FOUND}, "find of an unknown op");
  c.expect(op == -77, "find failed but wrote a number");
}

void unknown_number_is_refused(const Context& c) {
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = std::numeric_limits<int32_t>::max();
  int32_t taken = -1;
  aa_status* status = ops(c).enqueue(c.stream, &call, &taken);
  if (!status) c.expect(taken == 0, "enqueue took a call with a number that find never gave");
  if (status) c.any_error(status, "enqueue of a number that find never gave");
}

void numbers_are_constant(const Context& c) {
  const abi::Calls<aa_ops_table> table = ops(c);
  int found = 0;
  // Without the forms by rows, which the host calls for deterministic sessions only.
  const std::span names = std::span(op_names).first(op_count);
  for (const char* name : names) {
    int32_t first = -1;
    aa_status* status = table.find(c.instance, name, &first);
    if (status) {
      c.error(status, {AA_NOT_FOUND}, std::string("find of an op that is not there, \"") + name + "\"");
      continue;
    }
    int32_t second = -1;
    c.ok(table.find(c.instance, name, &second), "a second find");
    c.expect(first >= 0 && first == second, std::string("find of \"") + name + "\" gave " + std::to_string(first) +
                                                " and then " + std::to_string(second));
    ++found;
  }
  c.note = std::to_string(found) + " of " + std::to_string(names.size()) + " ops are the driver's own";
}

constexpr Case cases[] = {
    {"ops", "unknown_op_is_not_found", unknown_op_is_not_found},
    {"ops", "unknown_number_is_refused", unknown_number_is_refused},
    {"ops", "numbers_are_constant", numbers_are_constant},
};

}  // namespace
}  // namespace op_table_group

std::span<const Case> op_table_cases() { return op_table_group::cases; }

}  // namespace anyaccel::conformance
