// Cases of the host_memory extension.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "anyaccel/abi/host_memory.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace host_memory_group {
namespace {

constexpr size_t size = size_t{1} << 20;

abi::Calls<aa_host_memory_table> host_memory(const Context& c) {
  return c.extension<aa_host_memory_table>(AA_HOST_MEMORY_EXTENSION, AA_HOST_MEMORY_VERSION);
}

// The limit on locked memory may be small; that depends on the machine, not on the driver.
void ok_or_limited(const Context& c, aa_status* status, const char* what) {
  if (status && c.host.status_code(&c.host, status) == AA_RESOURCE_EXHAUSTED) {
    const std::string message = c.host.status_message(&c.host, status);
    c.drop(status);
    c.unavailable(std::string(what) + ": " + message);
  }
  c.ok_or_unsupported(status, what);
}

// Pages of ordinary memory, registered.
class Registered {
 public:
  Registered(const Context& c, const abi::Calls<aa_host_memory_table>& table)
      : context_(c), table_(table), pages_(static_cast<unsigned char*>(std::aligned_alloc(4096, size)), &std::free) {
    ok_or_limited(c, table.register_range(c.device, pages_.get(), size), "register_range");
  }
  ~Registered() { unregister(); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  unsigned char* data() const noexcept { return pages_.get(); }
  bool unregister() noexcept {
    const bool registered = registered_;
    registered_ = false;
    return !registered || context_.drop(table_.unregister_range(context_.device, pages_.get()));
  }

 private:
  const Context& context_;
  abi::Calls<aa_host_memory_table> table_;  // a copy: the caller may have passed a temporary
  std::unique_ptr<unsigned char, void (*)(void*)> pages_;
  bool registered_ = true;
};

void check_copies(const Context& c, unsigned char* host) {
  Memory memory(c, size);
  const Bytes data = pattern(size, 1);
  std::memcpy(host, data.data(), size);
  c.upload(memory.data(), host, size);
  expect_equal(c.download(memory.data(), size), data, "a copy from it");
  std::memset(host, 0, size);
  c.download(host, memory.data(), size);
  expect_equal({host, size}, data, "a copy to it");
}

void registered_ranges_copy(const Context& c) {
  Registered range(c, host_memory(c));
  check_copies(c, range.data());
  c.expect(range.unregister(), "unregister_range failed");
  check_copies(c, range.data());
}

// The address at which kernels access registered memory, which may differ from the host's address.
void registered_ranges_have_an_address(const Context& c) {
  const abi::Calls<aa_host_memory_table> table = host_memory(c);
  const std::unique_ptr<unsigned char, void (*)(void*)> pages(
      static_cast<unsigned char*>(std::aligned_alloc(4096, size)), &std::free);
  auto what = abi::sized<aa_register>();
  what.pointer = pages.get();
  what.size = size;
  auto registration = abi::sized<aa_registration>();
  ok_or_limited(c, table.register_range(c.device, &what, &registration), "register_range");
  auto* const first = static_cast<unsigned char*>(registration.device_address);
  auto info = abi::sized<aa_memory_info>();
  aa_status* const status = first ? c.driver.mem_query(c.instance, pages.get() + 100, &info) : nullptr;
  const bool lacks = status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED;
  const bool found = c.drop(status);
  c.expect(c.drop(table.unregister_range(c.device, pages.get())), "unregister_range failed");
  if (!first) {
    c.note = "only copies reach it";
    return;
  }
  if (lacks) return;
  c.expect(found, "mem_query does not know a byte of a registered range");
  c.expect(info.device_address == first + 100,
           "register_range and mem_query disagree about where kernels find a registered range");
  c.expect(static_cast<unsigned char*>(info.base) <= pages.get() && info.size >= size,
           "mem_query gave a wrong place or size of a registered range");
}

void registering_twice_is_refused(const Context& c) {
  const abi::Calls<aa_host_memory_table> table = host_memory(c);
  Registered range(c, table);
  c.error(table.register_range(c.device, range.data(), size), {AA_ALREADY_EXISTS}, "register_range of the same range");
  c.error(table.register_range(c.device, range.data() + 4096, 4096), {AA_ALREADY_EXISTS},
          "register_range of a part of a range");
  c.expect(range.unregister(), "unregister_range failed");
}

// The same pages once more, as a program does that registers what malloc returned.
void registering_again_after_unregistering(const Context& c) {
  const abi::Calls<aa_host_memory_table> table = host_memory(c);
  const std::unique_ptr<unsigned char, void (*)(void*)> pages(
      static_cast<unsigned char*>(std::aligned_alloc(4096, size)), &std::free);
  for (int round = 0; round < 3; ++round) {
    ok_or_limited(c, table.register_range(c.device, pages.get(), size), "register_range");
    c.ok(table.unregister_range(c.device, pages.get()), "unregister_range");
  }
  auto info = abi::sized<aa_memory_info>();
  aa_status* const status = c.driver.mem_query(c.instance, pages.get() + 100, &info);
  c.error(status, {AA_NOT_FOUND, AA_UNIMPLEMENTED}, "mem_query of a range that was unregistered");
}

void unregistering_unknown_is_refused(const Context& c) {
  const abi::Calls<aa_host_memory_table> table = host_memory(c);
  { Registered works(c, table); }
  int unknown = 0;
  c.any_error(table.unregister_range(c.device, &unknown), "unregister_range of a range that is not registered");
}

void allocates_on_a_node(const Context& c) {
  if (!c.has(AA_CAP_PINNED_HOST)) c.unsupported("the device has no pinned memory");
  auto what = abi::sized<aa_alloc>();
  what.kind = AA_MEMORY_PINNED;
  what.numa_node = 0;
  what.size = size;
  auto given = abi::sized<aa_allocation>();
  ok_or_limited(c, c.driver.mem_alloc(c.device, &what, &given), "mem_alloc of pinned memory on NUMA node 0");
  void* const pointer = given.pointer;
  struct Free {
    const Context& c;
    void* pointer;
    ~Free() { c.drop(c.driver.mem_free(c.device, AA_MEMORY_PINNED, pointer, size)); }
  } free{c, pointer};
  c.expect(pointer != nullptr, "mem_alloc succeeded but gave a null pointer");
  check_copies(c, static_cast<unsigned char*>(pointer));
}

constexpr Case cases[] = {
    {"host_memory", "registered_ranges_copy", registered_ranges_copy},
    {"host_memory", "registered_ranges_have_an_address", registered_ranges_have_an_address},
    {"host_memory", "registering_twice_is_refused", registering_twice_is_refused},
    {"host_memory", "registering_again_after_unregistering", registering_again_after_unregistering},
    {"host_memory", "unregistering_unknown_is_refused", unregistering_unknown_is_refused},
    {"host_memory", "allocates_on_a_node", allocates_on_a_node},
};

}  // namespace
}  // namespace host_memory_group

std::span<const Case> host_memory_cases() { return host_memory_group::cases; }

}  // namespace anyaccel::conformance
