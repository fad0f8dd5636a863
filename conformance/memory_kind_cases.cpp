// Cases of the extension "memory_kinds".
#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "anyaccel/abi/memory_kinds.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace memory_kind_group {
namespace {

using Kinds = abi::Calls<aa_memory_kinds_table>;

Kinds kinds_of(const Context& c) {
  return c.extension<aa_memory_kinds_table>(AA_MEMORY_KINDS_EXTENSION, AA_MEMORY_KINDS_VERSION);
}

int32_t count_of(const Context& c, const Kinds& table) {
  int32_t count = -1;
  c.ok(table.count(c.device, &count), "count");
  c.expect(count >= 0, "count wrote " + std::to_string(count));
  if (count == 0) c.unsupported("the device has no kinds of memory of its own");
  return count;
}

aa_memory_kind_info info_of(const Context& c, const Kinds& table, int32_t index) {
  auto info = abi::sized<aa_memory_kind_info>();
  c.ok(table.info(c.device, index, &info), "info of kind number " + std::to_string(index));
  c.expect(info.struct_size == sizeof(info), "info changed struct_size");
  return info;
}

struct Usage {
  int64_t free = -1;
  int64_t total = -1;
};

Usage usage_of(const Context& c, const Kinds& table, int32_t kind) {
  Usage usage;
  c.ok(table.usage(c.device, kind, &usage.free, &usage.total), "usage of kind " + std::to_string(kind));
  c.expect(usage.total > 0 && usage.free >= 0 && usage.free <= usage.total,
           "usage says that " + std::to_string(usage.free) + " of " + std::to_string(usage.total) + " bytes are free");
  return usage;
}

// Large enough to show in the free memory, small enough to be available.
size_t block_of(const Usage& usage) { return static_cast<size_t>(std::min<int64_t>(usage.free / 2, 16 << 20)); }

void facts_are_sane(const Context& c) {
  const Kinds table = kinds_of(c);
  std::set<int32_t> numbers;
  std::set<std::string> names;
  const int32_t count = count_of(c, table);
  for (int32_t i = 0; i < count; ++i) {
    const aa_memory_kind_info info = info_of(c, table, i);
    c.expect(info.kind >= AA_FIRST_NAMED_MEMORY_KIND,
             "a named kind has the number " + std::to_string(info.kind) + ", which is below those of named kinds");
    c.expect(numbers.insert(info.kind).second, "two kinds have the number " + std::to_string(info.kind));
    const std::string name(info.name, strnlen(info.name, sizeof(info.name)));
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
    c.expect(!name.empty() && name.size() < sizeof(info.name) && name.find_first_not_of(allowed) == std::string::npos,
             "a kind is called \"" + name + "\", where lower-case letters, digits and '_' are wanted");
    c.expect(names.insert(name).second, "two kinds are called " + name);
    c.expect((info.access & ~(AA_ACCESS_HOST | AA_ACCESS_KERNELS)) == 0, "access has unknown bits");
    usage_of(c, table, info.kind);
    const aa_memory_kind_info again = info_of(c, table, i);
    c.expect(std::memcmp(&info, &again, sizeof(info)) == 0, "info says something else the second time");
  }
  int32_t count_again = -1;
  c.ok(table.count(c.device, &count_again), "count");
  c.expect(count_again == count, "count says something else the second time");
}

void holds_what_is_copied(const Context& c) {
  const Kinds table = kinds_of(c);
  constexpr size_t size = 100003;
  for (int32_t i = 0; i < count_of(c, table); ++i) {
    const aa_memory_kind_info info = info_of(c, table, i);
    const std::string in = std::string(" in ") + info.name;
    Memory memory(c, size, info.kind);
    Memory ordinary(c, size);
    const Bytes data = pattern(size, static_cast<unsigned>(i));
    c.upload(ordinary.data(), data.data(), size);
    c.ok(c.driver.copy_async(c.stream, memory.data(), ordinary.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
    expect_equal(c.download(memory.data(), size), data, "what was copied within the device" + in);
    const Bytes second = pattern(size, static_cast<unsigned>(i) + 100);
    c.upload(memory.data(), second.data(), size);
    c.ok(c.driver.copy_async(c.stream, ordinary.data(), memory.data(), size, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
    expect_equal(c.download(ordinary.data(), size), second, "what was copied from the host" + in);
    const unsigned char value = 7;
    if (c.drop(c.driver.fill_async(c.stream, memory.data(), &value, 1, size))) {
      expect_equal(c.download(memory.data(), size), Bytes(size, value), "what was filled" + in);
    }
    auto found = abi::sized<aa_memory_info>();
    aa_status* status = c.driver.mem_query(c.instance, memory.data() + 5, &found);
    if (!status || c.host.status_code(&c.host, status) != AA_UNIMPLEMENTED) {
      c.ok(status, "mem_query");
      c.expect(found.kind == info.kind && found.device_index == 0 && found.base == memory.data(),
               "mem_query says kind " + std::to_string(found.kind) + " of device " +
                   std::to_string(found.device_index) + " for memory of kind " + std::to_string(info.kind));
    } else {
      c.drop(status);
    }
    if (info.access & AA_ACCESS_HOST) {
      c.synchronize();
      std::memcpy(memory.data(), data.data(), size);
      expect_equal(c.download(memory.data(), size), data, "what the host wrote" + in);
    }
  }
}

void usage_moves(const Context& c) {
  const Kinds table = kinds_of(c);
  for (int32_t i = 0; i < count_of(c, table); ++i) {
    const aa_memory_kind_info info = info_of(c, table, i);
    const Usage before = usage_of(c, table, info.kind);
    const size_t size = block_of(before);
    if (size == 0) c.unsupported(std::string(info.name) + " is full");
    // Other processes may allocate and free some memory meanwhile, though hardly half of a block.
    const auto half = static_cast<int64_t>(size / 2);
    Memory memory(c, size, info.kind);
    const Usage during = usage_of(c, table, info.kind);
    memory.free();
    const Usage after = usage_of(c, table, info.kind);
    const std::string bytes = std::to_string(size) + " bytes of " + info.name;
    c.expect(before.free - during.free > half, bytes + " were allocated, and what is free did not become less");
    c.expect(after.free - during.free > half, bytes + " were freed, and what is free did not become more");
    c.expect(before.total == during.total && before.total == after.total, "the total moves");
  }
}

void refuses_what_is_not_there(const Context& c) {
  const Kinds table = kinds_of(c);
  const int32_t count = count_of(c, table);
  int32_t unused = AA_FIRST_NAMED_MEMORY_KIND;
  for (int32_t i = 0; i < count; ++i) unused = std::max(unused, info_of(c, table, i).kind + 1);
  for (const int32_t index : {-1, count, INT32_MAX}) {
    auto info = abi::sized<aa_memory_kind_info>();
    c.error(table.info(c.device, index, &info), {AA_OUT_OF_RANGE}, "info of kind number " + std::to_string(index));
  }
  for (const int32_t kind : {unused, int32_t{AA_MEMORY_DEVICE}, -1}) {
    Usage usage;
    c.error(table.usage(c.device, kind, &usage.free, &usage.total), {AA_NOT_FOUND},
            "usage of kind " + std::to_string(kind));
    c.expect(usage.free == -1 && usage.total == -1, "usage failed but wrote");
  }
  void* pointer = nullptr;
  c.error(c.driver.mem_alloc(c.device, unused, 4096, &pointer), {AA_UNIMPLEMENTED, AA_INVALID_ARGUMENT},
          "mem_alloc of a kind that does not exist");
  for (int32_t i = 0; i < count; ++i) {
    const aa_memory_kind_info info = info_of(c, table, i);
    const auto more = static_cast<size_t>(usage_of(c, table, info.kind).total) + 4096;
    c.error(c.driver.mem_alloc(c.device, info.kind, more, &pointer), {AA_RESOURCE_EXHAUSTED},
            "mem_alloc of more than there is of " + std::string(info.name));
    c.expect(pointer == nullptr, "mem_alloc failed but wrote a pointer");
    Memory afterwards(c, 4096, info.kind);
  }
}

constexpr Case cases[] = {
    {"memory_kinds", "facts_are_sane", facts_are_sane},
    {"memory_kinds", "holds_what_is_copied", holds_what_is_copied},
    {"memory_kinds", "usage_moves", usage_moves},
    {"memory_kinds", "refuses_what_is_not_there", refuses_what_is_not_there},
};

}  // namespace
}  // namespace memory_kind_group

std::span<const Case> memory_kind_cases() { return memory_kind_group::cases; }

}  // namespace anyaccel::conformance
