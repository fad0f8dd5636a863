// Cases of the extensions "host_code" and "ceilings".
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/abi/host_code.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace host_code_group {
namespace {

abi::Calls<aa_host_code_table> host_code(const Context& c) {
  return c.extension<aa_host_code_table>(AA_HOST_CODE_EXTENSION, AA_HOST_CODE_VERSION);
}

void names_its_target(const Context& c) {
  const abi::Calls<aa_host_code_table> table = host_code(c);
  const char* target = nullptr;
  c.ok(table.target(c.instance, &target), "target");
  c.expect(target && *target, "target gave no name");
  c.note = target;
}

struct Region {
  const abi::Calls<aa_host_code_table>& table;
  aa_instance* instance;
  std::vector<std::atomic<int>> shares;
  std::atomic<int> wrong{0};
  std::atomic<int> inner{0};
};

void runs_every_share_once(const Context& c) {
  const abi::Calls<aa_host_code_table> table = host_code(c);
  int32_t threads = -1;
  c.ok(table.threads(c.instance, &threads), "threads");
  c.expect(threads >= 1, "threads gave " + std::to_string(threads));
  Region region{table, c.instance, std::vector<std::atomic<int>>(static_cast<size_t>(threads))};
  for (int round = 0; round < 20; ++round) {
    c.ok(table.run(
             c.instance,
             [](void* context, int32_t index, int32_t count) {
               auto& r = *static_cast<Region*>(context);
               if (index < 0 || index >= count || static_cast<size_t>(count) > r.shares.size()) {
                 ++r.wrong;
               } else {
                 ++r.shares[static_cast<size_t>(index)];
               }
             },
             &region),
         "run");
    c.expect(region.wrong == 0, "run called its body with an index or a count out of range");
    for (auto& share : region.shares) {
      const int calls = share.exchange(0);
      c.expect(calls == 1, "run called a share " + std::to_string(calls) + " times");
    }
  }
}

void inner_regions_have_one_share(const Context& c) {
  const abi::Calls<aa_host_code_table> table = host_code(c);
  Region region{table, c.instance, {}};
  c.ok(table.run(
           c.instance,
           [](void* context, int32_t, int32_t) {
             auto& outer = *static_cast<Region*>(context);
             aa_status* status = outer.table.run(
                 outer.instance,
                 [](void* inner_context, int32_t index, int32_t count) {
                   auto& r = *static_cast<Region*>(inner_context);
                   ++(index == 0 && count == 1 ? r.inner : r.wrong);
                 },
                 context);
             if (status) ++outer.wrong;
           },
           &region),
       "run");
  c.expect(region.wrong == 0 && region.inner > 0, "a region inside a region must run as body(context, 0, 1)");
}

void ceilings_are_numbers(const Context& c) {
  const auto table = c.extension<aa_ceilings_table>(AA_CEILINGS_EXTENSION, AA_CEILINGS_VERSION);
  int measured = 0;
  for (const int32_t kind : {AA_CEILING_READ, AA_CEILING_COPY, AA_CEILING_FMA_F32}) {
    double value = -1;
    aa_status* status = table.measure(c.device, kind, size_t{1} << 20, 0.002, &value);
    if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
      c.drop(status);
      c.expect(value == -1, "measure is unimplemented but wrote a value");
      continue;
    }
    c.ok(status, "measure of kind " + std::to_string(kind));
    c.expect(std::isfinite(value) && value > 0, "measure of kind " + std::to_string(kind) + " gave no positive number");
    ++measured;
  }
  double value = -1;
  c.any_error(table.measure(c.device, 99, size_t{1} << 20, 0.001, &value), "measure of kind 99");
  c.expect(value == -1, "measure of kind 99 failed but wrote a value");
  if (measured == 0) c.unsupported("every kind is unimplemented");
}

constexpr Case cases[] = {
    {"host_code", "names_its_target", names_its_target},
    {"host_code", "runs_every_share_once", runs_every_share_once},
    {"host_code", "inner_regions_have_one_share", inner_regions_have_one_share},
    {"ceilings", "are_numbers", ceilings_are_numbers},
};

}  // namespace
}  // namespace host_code_group

std::span<const Case> host_code_cases() { return host_code_group::cases; }

}  // namespace anyaccel::conformance
