// Cases of resources that a driver retains: free memory must follow allocations, and repeating calls must not grow
// memory or handles.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "conformance/graph_objects.h"

namespace anyaccel::conformance {
namespace growth_group {
namespace {

constexpr int64_t megabyte = int64_t{1} << 20;

// The memory of the process; -1 if the system does not report it.
struct Usage {
  int64_t resident = -1;  // bytes
  int64_t files = -1;
  int64_t threads = -1;
  int64_t mappings = -1;
};

int64_t entries(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator list(folder, error);
  return error ? -1 : std::distance(begin(list), end(list));
}

Usage usage() {
  Usage now;
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  if (file >> total >> resident) now.resident = resident * 4096;
  now.files = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  // Mappings without access rights are reserved addresses and occupy no memory.
  std::ifstream maps("/proc/self/maps");
  now.mappings = 0;
  for (std::string line; std::getline(maps, line);) now.mappings += line.find(" ---p ") == std::string::npos;
  return now;
}

int64_t free_memory(const Context& c) {
  int64_t free = -1;
  int64_t total = -1;
  c.ok_or_unsupported(c.driver.device_memory_info(c.device, &free, &total), "device_memory_info");
  c.expect(total > 0 && free >= 0 && free <= total,
           "free " + std::to_string(free) + " of total " + std::to_string(total) + " bytes cannot be");
  return free;
}

// Sanitizers keep what was freed for a while, to notice later uses.
bool sanitizer_keeps_memory([[maybe_unused]] const Context& c) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return c.driver.sanitizer && *c.driver.sanitizer;
#endif
}

// Runs `body` a few times so that caches fill, then `times` more: the second part may not leave anything behind.
template <class Body>
void leaves_nothing(const Context& c, const std::string& what, int times, int64_t bytes_each, const Body& body) {
  for (int i = 0; i < times / 4 + 1; ++i) body();
  const Usage before = usage();
  for (int i = 0; i < times; ++i) body();
  const Usage after = usage();
  if (before.resident < 0) c.unavailable("the system does not tell what a process occupies");
  const std::string loop = " after " + std::to_string(times) + " times " + what;
  c.expect(after.files <= before.files + 2,
           std::to_string(after.files - before.files) + " more file descriptors are open" + loop);
  c.expect(after.threads <= before.threads + 2,
           std::to_string(after.threads - before.threads) + " more threads run" + loop);
  if (sanitizer_keeps_memory(c)) return;
  c.expect(after.mappings <= before.mappings + times / 4 + 8,
           std::to_string(after.mappings - before.mappings) + " more ranges of memory are mapped" + loop);
  // Half of the bytes that a leak would leave is far above the noise of an allocator.
  c.expect(after.resident - before.resident < times * bytes_each / 2 + megabyte,
           "the process occupies " + std::to_string((after.resident - before.resident) / 1024) + " KiB more" + loop);
}

void free_memory_moves_with_allocations(const Context& c) {
  int64_t total_before = 0;
  int64_t free_before = 0;
  c.ok_or_unsupported(c.driver.device_memory_info(c.device, &free_before, &total_before), "device_memory_info");
  if (c.has(AA_CAP_IS_HOST) || c.has(AA_CAP_HOST_COHERENT)) c.unavailable("other programs use the device's memory too");
  const int64_t size = std::min(64 * megabyte, c.props.total_memory / 8);
  {
    Memory memory(c, static_cast<size_t>(size));
    const int64_t taken = free_before - free_memory(c);
    c.expect(taken >= size / 2 && taken <= 2 * size + 16 * megabyte,
             "device_memory_info says " + std::to_string(taken) + " bytes less are free after mem_alloc of " +
                 std::to_string(size));
  }
  const int64_t missing = free_before - free_memory(c);
  c.expect(missing <= size / 4,
           std::to_string(missing) + " of " + std::to_string(size) + " bytes are still not free after mem_free");
  // A tenth of tolerance: drivers count their own reservations in one of the figures and not in the other.
  c.expect(std::llabs(total_before - c.props.total_memory) <= c.props.total_memory / 10,
           "device_memory_info says " + std::to_string(total_before) + " bytes in total, device_props " +
               std::to_string(c.props.total_memory));
}

void device_memory_comes_back(const Context& c) {
  if (c.has(AA_CAP_IS_HOST) || c.has(AA_CAP_HOST_COHERENT)) c.unavailable("other programs use the device's memory too");
  const int64_t before = free_memory(c);
  const int64_t size = std::min(4 * megabyte, c.props.total_memory / 64);
  for (int i = 0; i < 200; ++i) Memory memory(c, static_cast<size_t>(size));
  c.expect(before - free_memory(c) < 40 * size, "memory is not free again after 200 times mem_alloc and mem_free");
}

void pinned_memory_comes_back(const Context& c) {
  if (!c.has(AA_CAP_PINNED_HOST)) c.unsupported("AA_CAP_PINNED_HOST is clear");
  leaves_nothing(c, "1 MiB of pinned memory", 64, megabyte, [&] {
    Memory memory(c, static_cast<size_t>(megabyte), AA_MEMORY_PINNED);
    std::memset(memory.data(), 1, static_cast<size_t>(megabyte));
  });
}

void streams_come_back(const Context& c) {
  Memory memory(c, 4096);
  const unsigned char value = 1;
  leaves_nothing(c, "a stream with some work", 100, 16384, [&] {
    Stream stream(c);
    c.drop(c.driver.fill_async(stream, memory.data(), &value, 1, 4096));
    c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  });
}

void events_come_back(const Context& c) {
  leaves_nothing(c, "an event that is recorded and waited for", 20000, 100, [&] {
    Event event(c);
    c.ok(c.driver.event_record(event, c.stream), "event_record");
    c.drop(c.driver.stream_wait_event(c.stream, event));
    c.ok(c.driver.event_synchronize(event), "event_synchronize");
  });
}

void work_comes_back(const Context& c) {
  Memory memory(c, 4096);
  const Bytes data = pattern(4096, 1);
  leaves_nothing(c, "a copy", 20000, 100, [&] {
    c.ok(c.driver.copy_async(c.stream, memory.data(), data.data(), 64, AA_COPY_HOST_TO_DEVICE), "copy_async");
    c.synchronize();
  });
}

void graphs_come_back(const Context& c) {
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory from(c, 4096);
  Memory to(c, 4096);
  Stream stream(c);
  leaves_nothing(c, "a graph of a copy, launched twice", 2000, 1000, [&] {
    Capture capture(c, table, stream);
    c.ok(c.driver.copy_async(stream, to.data(), from.data(), 4096, AA_COPY_DEVICE_TO_DEVICE), "copy_async");
    const Graph graph(c, table, capture.end());
    graph.launch(stream);
    graph.launch(stream);
    c.ok(c.driver.stream_synchronize(stream), "stream_synchronize");
  });
}

void errors_come_back(const Context& c) {
  // Each error is an object that somebody must release; the suite does.
  leaves_nothing(c, "an error", 20000, 100, [&] {
    void* pointer = nullptr;
    c.any_error(c.driver.mem_alloc(c.device, 99, 4096, &pointer), "mem_alloc of kind 99");
  });
}

constexpr Case cases[] = {
    {"growth", "free_memory_moves_with_allocations", free_memory_moves_with_allocations},
    {"growth", "device_memory_comes_back", device_memory_comes_back},
    {"growth", "pinned_memory_comes_back", pinned_memory_comes_back},
    {"growth", "streams_come_back", streams_come_back},
    {"growth", "events_come_back", events_come_back},
    {"growth", "work_comes_back", work_comes_back},
    {"growth", "graphs_come_back", graphs_come_back},
    {"growth", "errors_come_back", errors_come_back},
};

}  // namespace
}  // namespace growth_group

std::span<const Case> growth_cases() { return growth_group::cases; }

}  // namespace anyaccel::conformance
