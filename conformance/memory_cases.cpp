// Cases of allocation.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace memory_group {
namespace {

void alloc_is_aligned_and_apart(const Context& c) {
  c.expect(c.props.alignment > 0, "alignment " + std::to_string(c.props.alignment) + " is not positive");
  std::vector<std::unique_ptr<Memory>> blocks;
  std::vector<std::pair<size_t, int32_t>> asked;
  for (const size_t size : {size_t{1}, size_t{2}, size_t{63}, size_t{64}, size_t{4097}, size_t{1} << 20,
                            (size_t{8} << 20) + 1, (size_t{8} << 20) + 2}) {
    asked.emplace_back(size, AA_MEMORY_DEVICE);
    if (c.has(AA_CAP_PINNED_HOST)) asked.emplace_back(size, AA_MEMORY_PINNED);
    if (c.has(AA_CAP_MANAGED_MEMORY)) asked.emplace_back(size, AA_MEMORY_MANAGED);
  }
  for (const auto& [size, kind] : asked) {
    blocks.push_back(std::make_unique<Memory>(c, size, kind));
    const auto address = reinterpret_cast<uintptr_t>(blocks.back()->data());
    c.expect(address % static_cast<uintptr_t>(c.props.alignment) == 0,
             "an allocation of " + std::to_string(size) + " bytes of kind " + std::to_string(kind) +
                 " is not aligned to " + std::to_string(c.props.alignment));
    for (size_t i = 0; i + 1 < blocks.size(); ++i) {
      const auto other = reinterpret_cast<uintptr_t>(blocks[i]->data());
      c.expect(address + size <= other || other + blocks[i]->size() <= address, "two allocations overlap");
    }
  }
}

void free_reports_success(const Context& c) {
  void* pointer = nullptr;
  c.ok(c.driver.mem_alloc(c.device, AA_MEMORY_DEVICE, 1000, &pointer), "mem_alloc");
  c.ok(c.driver.mem_free(c.device, AA_MEMORY_DEVICE, pointer, 1000), "mem_free");
}

void alloc_describes_what_it_gives(const Context& c) {
  auto what = abi::sized<aa_alloc>();
  what.kind = AA_MEMORY_DEVICE;
  what.numa_node = -1;
  what.size = 1000;
  auto given = abi::sized<aa_allocation>();
  c.ok(c.driver.mem_alloc(c.device, &what, &given), "mem_alloc");
  const std::string found = "; struct_size " + std::to_string(given.struct_size) + ", kind " +
                            std::to_string(given.kind) + ", size " + std::to_string(given.size);
  c.ok(c.driver.mem_free(c.device, AA_MEMORY_DEVICE, given.pointer, what.size), "mem_free");
  c.expect(given.struct_size == sizeof(given), "mem_alloc changed struct_size" + found);
  c.expect(given.kind == what.kind, "mem_alloc gave another kind than it was asked for" + found);
  c.expect(given.size == what.size, "mem_alloc gave another size than it was asked for" + found);
}

void contents_stay_apart(const Context& c) {
  Memory first(c, 5000);
  Memory second(c, 5000);
  const Bytes a = pattern(5000, 1);
  const Bytes b = pattern(5000, 2);
  c.upload(first.data(), a.data(), a.size());
  c.upload(second.data(), b.data(), b.size());
  expect_equal(c.download(first.data(), a.size()), a, "the first allocation");
  expect_equal(c.download(second.data(), b.size()), b, "the second allocation");
}

void too_much_is_resource_exhausted(const Context& c) {
  int place = 0;
  void* const untouched = &place;
  void* pointer = untouched;
  c.error(c.driver.mem_alloc(c.device, AA_MEMORY_DEVICE, size_t{1} << 52, &pointer), {AA_RESOURCE_EXHAUSTED},
          "mem_alloc of 4 PiB");
  c.expect(pointer == untouched, "mem_alloc failed but wrote a pointer");
  if (c.promises(AA_CAP_PINNED_HOST)) {
    c.error(c.driver.mem_alloc(c.device, AA_MEMORY_PINNED, size_t{1} << 52, &pointer), {AA_RESOURCE_EXHAUSTED},
            "mem_alloc of 4 PiB of pinned memory");
  }
  // The device must stay usable.
  Memory memory(c, 4096);
  const Bytes data = pattern(4096, 3);
  c.upload(memory.data(), data.data(), data.size());
  expect_equal(c.download(memory.data(), data.size()), data, "a copy after mem_alloc had failed");
}

void unknown_kind_is_refused(const Context& c) {
  void* pointer = nullptr;
  c.error(c.driver.mem_alloc(c.device, 99, 4096, &pointer), {AA_UNIMPLEMENTED, AA_INVALID_ARGUMENT},
          "mem_alloc of kind 99");
  c.expect(pointer == nullptr, "mem_alloc failed but wrote a pointer");
}

void query_finds_allocations(const Context& c) {
  Memory memory(c, 10000);
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{5000}, size_t{9999}}) {
    aa_memory_info info{};
    info.struct_size = sizeof(info);
    c.ok_or_unsupported(c.driver.mem_query(c.instance, memory.data() + offset, &info), "mem_query");
    const std::string where = " at offset " + std::to_string(offset);
    c.expect(info.base == memory.data(), "mem_query gave a wrong base" + where);
    c.expect(info.size >= memory.size(), "mem_query gave a wrong size" + where);
    c.expect(info.kind == AA_MEMORY_DEVICE, "mem_query gave a wrong kind" + where);
    c.expect(info.device_address == memory.data() + offset,
             "mem_query gave another address for kernels than the pointer itself" + where);
    c.expect(info.device_index == 0, "mem_query gave a wrong device" + where);
    c.expect(info.struct_size == sizeof(info), "mem_query changed struct_size");
  }
}

void query_knows_no_foreign_memory(const Context& c) {
  Memory memory(c, 4096);
  aa_memory_info info{};
  info.struct_size = sizeof(info);
  c.ok_or_unsupported(c.driver.mem_query(c.instance, memory.data(), &info), "mem_query");
  const auto foreign = std::make_unique<int>(1);
  aa_memory_info untouched{};
  untouched.struct_size = sizeof(untouched);
  c.error(c.driver.mem_query(c.instance, foreign.get(), &untouched), {AA_NOT_FOUND}, "mem_query of the host's memory");
  c.expect(untouched.base == nullptr && untouched.size == 0, "mem_query failed but wrote");
  c.error(c.driver.mem_query(c.instance, nullptr, &untouched), {AA_NOT_FOUND, AA_INVALID_ARGUMENT},
          "mem_query of null");
  // The byte behind an allocation is another one's or nobody's.
  aa_memory_info behind{};
  behind.struct_size = sizeof(behind);
  if (c.drop(c.driver.mem_query(c.instance, static_cast<unsigned char*>(info.base) + info.size, &behind))) {
    c.expect(behind.base != info.base, "mem_query counts the byte behind an allocation to it");
  }
  unsigned char* const freed = memory.data();
  memory.free();
  c.error(c.driver.mem_query(c.instance, freed, &untouched), {AA_NOT_FOUND}, "mem_query of memory that was freed");
}

// Allocates a kind of memory that the host can use, if the flag promises it; else it must be unimplemented.
void host_visible_kind(const Context& c, uint64_t capability, int32_t kind) {
  if (!c.has(capability)) {
    void* pointer = nullptr;
    c.error(c.driver.mem_alloc(c.device, kind, 4096, &pointer), {AA_UNIMPLEMENTED},
            "mem_alloc of a kind whose flag is clear");
    c.expect(pointer == nullptr, "mem_alloc failed but wrote a pointer");
    c.unsupported("the flag is clear, and mem_alloc says so");
  }
  Memory host(c, 8192, kind);
  Memory device(c, 8192);
  const Bytes data = pattern(8192, 4);
  std::memcpy(host.data(), data.data(), data.size());
  c.ok(c.driver.copy_async(c.stream, device.data(), host.data(), 8192, AA_COPY_HOST_TO_DEVICE), "copy_async");
  c.synchronize();
  expect_equal(c.download(device.data(), 8192), data, "a copy from it");
  std::memset(host.data(), 0, 8192);
  c.ok(c.driver.copy_async(c.stream, host.data(), device.data(), 8192, AA_COPY_DEVICE_TO_HOST), "copy_async");
  c.synchronize();
  expect_equal({host.data(), 8192}, data, "a copy to it");
  aa_memory_info info{};
  info.struct_size = sizeof(info);
  aa_status* status = c.driver.mem_query(c.instance, host.data() + 100, &info);
  if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
    c.drop(status);
    return;
  }
  c.ok(status, "mem_query");
  c.expect(info.kind == kind,
           "mem_query gives kind " + std::to_string(info.kind) + " for kind " + std::to_string(kind));
}

void pinned_memory(const Context& c) { host_visible_kind(c, AA_CAP_PINNED_HOST, AA_MEMORY_PINNED); }
void managed_memory(const Context& c) { host_visible_kind(c, AA_CAP_MANAGED_MEMORY, AA_MEMORY_MANAGED); }

void host_coherent_memory(const Context& c) {
  if (!c.has(AA_CAP_HOST_COHERENT)) c.unsupported("the flag is clear; the host must not touch device memory");
  Memory memory(c, 4096);
  const Bytes data = pattern(4096, 5);
  std::memcpy(memory.data(), data.data(), data.size());
  expect_equal(c.download(memory.data(), 4096), data, "what the host wrote");
  const Bytes other = pattern(4096, 6);
  c.upload(memory.data(), other.data(), other.size());
  expect_equal({memory.data(), 4096}, other, "what the host reads");
}

void is_the_host(const Context& c) {
  if (!c.has(AA_CAP_IS_HOST)) c.unsupported("the flag is clear");
  c.expect(c.has(AA_CAP_HOST_COHERENT), "a device that is the host has memory that the host may use");
}

void allocates_from_threads(const Context& c) {
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const size_t size = static_cast<size_t>(64 + 1000 * t + i);
        void* pointer = nullptr;
        if (!c.drop(c.driver.mem_alloc(c.device, AA_MEMORY_DEVICE, size, &pointer)) || !pointer) {
          ++failures;
        } else if (!c.drop(c.driver.mem_free(c.device, AA_MEMORY_DEVICE, pointer, size))) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  c.expect(failures == 0, std::to_string(failures) + " of 200 pairs of mem_alloc and mem_free on four threads failed");
}

constexpr Case cases[] = {
    {"memory", "alloc_is_aligned_and_apart", alloc_is_aligned_and_apart},
    {"memory", "free_reports_success", free_reports_success},
    {"memory", "alloc_describes_what_it_gives", alloc_describes_what_it_gives},
    {"memory", "contents_stay_apart", contents_stay_apart},
    {"memory", "too_much_is_resource_exhausted", too_much_is_resource_exhausted},
    {"memory", "unknown_kind_is_refused", unknown_kind_is_refused},
    {"memory", "query_finds_allocations", query_finds_allocations},
    {"memory", "query_knows_no_foreign_memory", query_knows_no_foreign_memory},
    {"memory", "pinned_memory", pinned_memory},
    {"memory", "managed_memory", managed_memory},
    {"memory", "host_coherent_memory", host_coherent_memory},
    {"memory", "is_the_host", is_the_host},
    {"memory", "allocates_from_threads", allocates_from_threads},
};

}  // namespace
}  // namespace memory_group

std::span<const Case> memory_cases() { return memory_group::cases; }

}  // namespace anyaccel::conformance
