// Cases of the profiler extension: no call may fail because no profiler is attached.
#include "anyaccel/abi/profiler.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace profiler_group {
namespace {

void ranges_never_fail(const Context& c) {
  const auto table = c.extension<aa_profiler_table>(AA_PROFILER_EXTENSION, AA_PROFILER_VERSION);
  c.ok_or_unsupported(table.range_push(c.instance, "outer", "", ""), "range_push");
  c.ok(table.range_push(c.instance, "inner", "a domain", "a category"), "range_push with domain and category");
  c.ok(table.mark(c.instance, "an instant", ""), "mark");
  c.ok(table.range_pop(c.instance, "a domain"), "range_pop of a domain");
  c.ok(table.range_pop(c.instance, ""), "range_pop");
  c.ok(table.range_pop(c.instance, ""), "range_pop without an open range");
  c.ok(table.range_pop(c.instance, "never used"), "range_pop of a domain that was never used");
}

constexpr Case cases[] = {{"profiler", "ranges_never_fail", ranges_never_fail}};

}  // namespace
}  // namespace profiler_group

std::span<const Case> profiler_cases() { return profiler_group::cases; }

}  // namespace anyaccel::conformance
