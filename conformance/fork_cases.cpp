// Cases of a child process after the driver was opened in its parent: the child may call probe and initialize only, and
// their results must say whether the driver can be used there. (That probe alone leaves a process able to fork is a
// case of probe_cases.cpp.)
#include "conformance/child.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace fork_group {
namespace {

void child_of_an_open_driver(const Context& c) {
  in_child("the child of a process that had opened the driver", [&] {
    aa_probe probe{};
    probe.struct_size = sizeof(probe);
    c.ok(c.driver.probe(&probe), "probe");
    c.expect(probe.state >= AA_PROBE_ABSENT && probe.state <= AA_PROBE_USABLE, "probe gave an unknown state");
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    aa_instance* instance = nullptr;
    aa_status* status = c.driver.initialize(&params, &instance);
    if (status) {
      c.any_error(status, "initialize");
      c.expect(instance == nullptr, "initialize failed but gave an instance");
    } else {
      c.expect(instance != nullptr, "initialize succeeded but gave a null instance");
    }
  });
  // The parent can still use the driver.
  Memory memory(c, 5000);
  const Bytes data = pattern(5000, 1);
  c.upload(memory.data(), data.data(), data.size());
  expect_equal(c.download(memory.data(), data.size()), data, "a copy in the parent after a child has ended");
}

constexpr Case cases[] = {{"fork", "child_of_an_open_driver", child_of_an_open_driver}};

}  // namespace
}  // namespace fork_group

std::span<const Case> fork_cases() { return fork_group::cases; }

}  // namespace anyaccel::conformance
